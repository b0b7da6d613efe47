// Qwen2, Qwen2.5 and DeepSeek-R1-Distill-Qwen: q, k and v always have a bias, o never.
#include "model/config.h"
#include "model/families/family.h"

namespace zipage {

const ModelFamily& qwen2_family() {
  static constexpr ModelFamily kFamily = {
      .architecture = "Qwen2ForCausalLM",
      .model_type = "qwen2",
      .gguf_architecture = "qwen2",
      .default_head_dim = 0,
      .kv_heads_optional = false,
      .gguf_interleaved_qk = false,
      .read_json =
          [](const JsonValue& json, ModelConfig& config) {
            config.attention_bias = true;
            refuse_qwen_sliding_window(json, config);
          },
      .set_gguf = [](ModelConfig& config) { config.attention_bias = true; }};
  return kFamily;
}

}  // namespace zipage
