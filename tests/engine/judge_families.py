"""Small random models of each family with what transformers answers, in f32; see families_test.cc.

usage: judge_families.py FOLDER
Writes FOLDER/NAME/ (as save_pretrained leaves it), FOLDER/NAME.gguf (matrices in a packed type), and FOLDER/cases.json:
[{"model", "prompt", "tokens", "logprobs": file}], the file with the log-probabilities [tokens, vocabulary] in f32 of the
greedy continuation. For a packed file transformers runs on the file's dequantised matrices.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
from families_judge import interleave, write_gguf

SMALL = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, bos_token_id=256, eos_token_id=258, pad_token_id=256)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 128}
MODELS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "llama-bias-tied": transformers.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama3": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama-linear": transformers.LlamaConfig(**SMALL, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
    "qwen2": transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen2-yarn": transformers.Qwen2Config(**SMALL, rope_parameters=YARN),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=32),
    "qwen3-bias": transformers.Qwen3Config(**SMALL, head_dim=32, attention_bias=True),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=None, head_dim=16),
}
# Whose matrices are also written in these types; RoPE scaling is left to the folders.
PACKED = {"llama": "Q4_0", "llama-bias-tied": "Q5_1", "qwen2": "Q4_1", "qwen3": "Q8_0", "qwen3-bias": "Q5_0", "mistral": "Q8_0"}
K_MODEL = transformers.LlamaConfig(**{**SMALL, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2})
# Bytes of a block, and where its f16 scales are: of weights whose spread is about 0.1.
K_TYPES = {"Q4_K": (144, {0: 6e-4, 2: 4.5e-3}), "Q5_K": (176, {0: 3e-4, 2: 4.5e-3}), "Q6_K": (210, {208: 7.5e-5})}


def random_blocks(name, rows, columns, rng):
    size, scales = K_TYPES[name]
    blocks = rng.integers(0, 256, (rows, columns // 256, size), dtype=np.uint8)
    for offset, scale in scales.items():
        blocks[:, :, offset:offset + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def deinterleave(rows, num_heads):
    order = interleave(np.arange(rows.shape[0]), num_heads)
    out = np.empty_like(rows)
    out[order] = rows
    return out


def fill_with_blocks(model, config, name, rng):
    """Gives every matrix random blocks of a K type; the blocks, for the file."""
    blocks = {}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim != 2:
                parameter.fill_(1.0)
                continue
            blocks[key] = random_blocks(name, *parameter.shape, rng)
            values = gguf.quants.dequantize(blocks[key], gguf.GGMLQuantizationType[name])
            if ".q_proj." in key:
                values = deinterleave(values, config.num_attention_heads)
            if ".k_proj." in key:
                values = deinterleave(values, config.num_key_value_heads)
            parameter.copy_(torch.from_numpy(values))
    return blocks


def answer(model, prompt, path):
    """The greedy continuation of 24 tokens, each with the log-probabilities of all."""
    ids, rows = list(prompt), []
    with torch.no_grad():
        for _ in range(24):
            logits = model(torch.tensor([ids])).logits[0, -1]
            rows.append(torch.log_softmax(logits.double(), -1).float().numpy())
            ids.append(int(logits.argmax()))
    np.stack(rows).tofile(path)
    return ids[len(prompt):]


def random_model(config):
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()


def round_to(model, kind):
    """Every matrix becomes what a file of that type will say."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                packed = gguf.quants.quantize(parameter.numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(packed, kind)))


def main(folder):
    torch.manual_seed(3)
    rng = np.random.default_rng(5)
    cases = []

    def ask(model, target):
        for length in (5, 150):
            prompt = [int(i) for i in rng.integers(0, 256, length)]
            logprobs = f"{folder}/{target}-{length}.f32"
            cases.append({"model": target, "prompt": prompt, "tokens": answer(model, prompt, logprobs), "logprobs": logprobs})

    for name, config in MODELS.items():
        model = random_model(config)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.normal_(1.0 if "norm" in key else 0.0, 0.15)
        model.save_pretrained(f"{folder}/{name}")
        ask(model, name)
        if name in PACKED:
            kind = gguf.GGMLQuantizationType[PACKED[name]]
            round_to(model, kind)
            write_gguf(f"{folder}/{name}.gguf", config, model.state_dict(), kind)
            ask(model, f"{name}.gguf")
    for name in K_TYPES:
        model = random_model(K_MODEL)
        blocks = fill_with_blocks(model, K_MODEL, name, rng)
        write_gguf(f"{folder}/{name}.gguf", K_MODEL, model.state_dict(), gguf.GGMLQuantizationType[name], blocks)
        ask(model, f"{name}.gguf")
    json.dump(cases, open(f"{folder}/cases.json", "w"))


if __name__ == "__main__":
    main(sys.argv[1])
