"""Small models of each family, written by transformers and gguf; see families_judge_test.cc.

Writes FOLDER/NAME/ (a model as save_pretrained leaves it), FOLDER/NAME.gguf (F32) and
FOLDER/NAME-q8.gguf (matrices in Q8_0, quantised after the reordering of q and k rows) for each
model, and FOLDER/models.json with what was asked for.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
import transformers

GGUF_ARCH = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}


def interleave(rows, num_heads):
    """As the converter of llama.cpp orders the rows of q and k."""
    shape = rows.shape
    return rows.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write_gguf(path, config, state, packed=None, blocks=None):
    """Matrices in the type `packed` of ggml, the rest in F32. `blocks`: matrices that are packed already, by name."""
    arch = GGUF_ARCH[config.model_type]
    writer = gguf.GGUFWriter(path, arch.lower())
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if config.model_type == "qwen3":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    else:
        writer.add_rope_dimension_count(head_dim)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch], config.num_hidden_layers)
    for name, tensor in state.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if arch == "LLAMA" and ".q_proj." in name:
            values = interleave(values, config.num_attention_heads)
        if arch == "LLAMA" and ".k_proj." in name:
            values = interleave(values, config.num_key_value_heads)
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        kind = gguf.GGMLQuantizationType.F32
        if packed is not None and values.ndim == 2:
            kind = packed
            values = blocks[name] if blocks else gguf.quants.quantize(values, kind)
        writer.add_tensor(target, np.ascontiguousarray(values), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder):
    torch.manual_seed(1)
    small = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                 bos_token_id=1, eos_token_id=2, pad_token_id=0)
    models = {
        "llama": transformers.LlamaConfig(**small),
        "llama-bias": transformers.LlamaConfig(**small, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        "qwen2": transformers.Qwen2Config(**small),
        "qwen2-tied": transformers.Qwen2Config(**small, tie_word_embeddings=True),
        "qwen3": transformers.Qwen3Config(**small, head_dim=32),
        "qwen3-bias": transformers.Qwen3Config(**small, head_dim=32, attention_bias=True),
        "mistral": transformers.MistralConfig(**small, sliding_window=None, head_dim=16),
    }
    asked = []
    for name, config in models.items():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.5)
        path = f"{folder}/{name}"
        # Two shards for one of them.
        model.save_pretrained(path, max_shard_size="60KB" if name == "llama" else "1GB")
        write_gguf(f"{path}.gguf", config, model.state_dict())
        write_gguf(f"{path}-q8.gguf", config, model.state_dict(), gguf.GGMLQuantizationType.Q8_0)
        asked.append({"name": name, "architecture": model.config.architectures[0],
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "shards": len([f for f in os.listdir(path) if f.endswith(".safetensors")])})
    json.dump(asked, open(f"{folder}/models.json", "w"))


if __name__ == "__main__":
    main(sys.argv[1])
