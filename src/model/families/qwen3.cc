// Qwen3: every query and key head is normed before RoPE; head_dim is free of hidden_size / heads.
#include "model/config.h"
#include "model/families/family.h"
#include "weights/json.h"

namespace zipage {
namespace {

void read_json(const JsonValue& json, ModelConfig& config) {
  config.qk_norm = true;
  const auto bias = json.find("attention_bias");
  config.attention_bias = bias && bias->as_bool();
  config.output_bias = config.attention_bias;
  refuse_qwen_sliding_window(json, config);
}

}  // namespace

const ModelFamily& qwen3_family() {
  static constexpr ModelFamily kFamily = {
      .architecture = "Qwen3ForCausalLM",
      .model_type = "qwen3",
      .gguf_architecture = "qwen3",
      .default_head_dim = 128,
      .kv_heads_optional = false,
      .gguf_interleaved_qk = false,
      .read_json = read_json,
      .set_gguf = [](ModelConfig& config) { config.qk_norm = true; }};
  return kFamily;
}

}  // namespace zipage
