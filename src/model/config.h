// ModelConfig: what the forward pass must know of a model. Read from config.json (here) or from
// GGUF metadata (model/gguf_config.h).
//
// Threads: plain values, pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/rope.h"
#include "tensor/dtype.h"

namespace zipage {

class JsonValue;

struct ModelConfig {
  // "Qwen3ForCausalLM"
  std::string architecture;
  // "qwen3"
  std::string model_type;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  // A multiple of num_kv_heads.
  int32_t num_q_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  // q, k and v have a bias.
  bool attention_bias = false;
  // o has a bias.
  bool output_bias = false;
  // gate, up and down have a bias.
  bool mlp_bias = false;
  // Every q and k head is normed before RoPE.
  bool qk_norm = false;
  // The file orders q and k rows for RoPE of (2i, 2i + 1) pairs.
  bool interleaved_qk = false;
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  // The type the weights were trained or saved in.
  DType dtype = DType::kF32;

  float attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // Tokens that the model can attend to: max_position_embeddings, stretched by RoPE scaling.
  int64_t max_context_tokens() const;
};

// From a parsed config.json. Every field is checked for type, range and consistency; an unknown
// architecture is an error that lists the supported ones. Throws kDataLoss, or kUnimplemented.
ModelConfig parse_model_config(const JsonValue& json);
// From folder/config.json.
ModelConfig read_model_config(const std::string& folder);

// The checks that hold whatever the config was read from; `file` is for messages.
void check_model_config(const ModelConfig& config, const std::string& file);

}  // namespace zipage
