"""Writes a Qwen3 model folder with a byte-level vocabulary as a BF16 GGUF file that llama.cpp reads.

usage: reasoner_to_gguf.py MODEL_FOLDER OUT.gguf
"""
import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def name_in_gguf(name):
    words = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
    if words[0] == "layers":
        return f"blk.{words[1]}.{PARTS[words[2]]}.weight"
    return {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[words[0]]


def add_config(writer, config):
    writer.add_file_type(32)  # mostly BF16
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def add_vocabulary(writer, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    size = config["vocab_size"]
    names = [f"<unused{i}>" for i in range(size)]
    types = [TokenType.UNUSED] * size
    for text, i in tokenizer["model"]["vocab"].items():
        names[i], types[i] = text, TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        names[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(types)
    # The loader insists on a merge; this one makes no token, so that each byte stays one.
    writer.add_token_merges(["\u0100 \u0100"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)


def add_tensors(writer, folder):
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        header_bytes = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + header_bytes])
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            if tensor["dtype"] != "BF16":
                sys.exit(f"{path}: tensor '{name}' is {tensor['dtype']}, expected BF16")
            begin, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
            bits = np.frombuffer(raw[begin:end], np.uint16).reshape(tensor["shape"])
            if bits.ndim == 1:  # norms are F32 in every GGUF file
                writer.add_tensor(name_in_gguf(name), (bits.astype(np.uint32) << 16).view(np.float32))
            else:
                writer.add_tensor(name_in_gguf(name), bits.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)


def main():
    folder, out = Path(sys.argv[1]), sys.argv[2]
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(out, "qwen3")
    add_config(writer, config)
    add_vocabulary(writer, folder, config)
    add_tensors(writer, folder)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
