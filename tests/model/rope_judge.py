"""RoPE frequencies of transformers for every kind of scaling: FOLDER/rope.json; see rope_judge_test.cc."""
import json
import sys

import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

folder = sys.argv[1]
scalings = {
    "plain": {},
    "theta": {"rope_theta": 1e6},
    # LlamaRotaryEmbedding itself turns whole heads; the scalings know of parts.
    "partial": {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "dynamic-long": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}},
    "yarn": {"rope_theta": 1e6, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    "yarn-mscale": {"rope_scaling": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.7}},
    "yarn-given": {"rope_scaling": {
        "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048, "beta_fast": 16.0,
        "beta_slow": 2.0, "attention_factor": 1.25, "truncate": False}},
    "yarn-no-original": {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
}
cases = []
for name, fields in scalings.items():
    # As files of transformers 4 say it, and as version 5 writes it again.
    old = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=96, hidden_size=512,
               intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               head_dim=128, max_position_embeddings=4096, **fields)
    config = transformers.LlamaConfig(**json.loads(json.dumps(old)))
    new = config.to_dict()
    new["architectures"] = ["LlamaForCausalLM"]
    length = 10000 if name == "dynamic-long" else 4096
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        embedding = LlamaRotaryEmbedding(config)
        frequencies, factor = embedding.inv_freq, embedding.attention_scaling
    else:
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    cases.append({"name": name, "old": old, "new": new, "max_positions": length,
                  "frequencies": frequencies.double().tolist(), "attention_factor": float(factor)})
json.dump(cases, open(f"{folder}/rope.json", "w"))
