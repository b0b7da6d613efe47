// ModelFamily: the row of facts that sets one model family apart. All of them are pre-norm decoders
// with gated SiLU, RMS norm, grouped-query attention and RoPE; see model/decoder.h for the forward
// pass. A new family is a file in this folder and a row in the list.
//
// Threads: constants and pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/families/family_list.h"

namespace zipage {

class JsonValue;
struct ModelConfig;

struct ModelFamily {
  // config.json: architectures[0]
  std::string_view architecture;
  // config.json: model_type.
  std::string_view model_type;
  // general.architecture; empty: none of its own.
  std::string_view gguf_architecture;
  // Where config.json has none; 0: hidden_size / heads.
  int32_t default_head_dim;
  // Absent num_key_value_heads means one a query head.
  bool kv_heads_optional;
  // GGUF files order q and k rows for RoPE of adjacent pairs.
  bool gguf_interleaved_qk;
  // The fields that only this family has. `config` has its sizes already.
  void (*read_json)(const JsonValue& json, ModelConfig& config);
  // The same for a GGUF file, whose tensors tell of biases.
  void (*set_gguf)(ModelConfig& config);
};

#define ZIPAGE_DECLARE_FAMILY(name) const ModelFamily& name##_family();
ZIPAGE_MODEL_FAMILIES(ZIPAGE_DECLARE_FAMILY)
#undef ZIPAGE_DECLARE_FAMILY

std::span<const ModelFamily* const> model_families();
// Null when unknown.
const ModelFamily* find_family(std::string_view architecture);
const ModelFamily* find_gguf_family(std::string_view gguf_architecture);
// "LlamaForCausalLM, MistralForCausalLM, ..." and "llama, qwen2, ...".
std::string supported_architectures();
std::string supported_gguf_architectures();

// Refuses a config whose layers attend to a window: `window` is the field of a model in which every
// layer slides when the field is set.
void refuse_sliding_window(const JsonValue& json, const ModelConfig& config);
// Qwen's form of it: use_sliding_window, and only layers from max_window_layers on slide.
void refuse_qwen_sliding_window(const JsonValue& json, const ModelConfig& config);

}  // namespace zipage
