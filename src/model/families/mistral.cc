// Mistral 7B and its kin from v0.2 on: Llama's shape without a bias. GGUF files call it llama.
#include "model/config.h"
#include "model/families/family.h"

namespace zipage {

const ModelFamily& mistral_family() {
  static constexpr ModelFamily kFamily = {
      .architecture = "MistralForCausalLM",
      .model_type = "mistral",
      .gguf_architecture = "",
      .default_head_dim = 0,
      .kv_heads_optional = false,
      .gguf_interleaved_qk = true,
      .read_json = [](const JsonValue& json,
                      ModelConfig& config) { refuse_sliding_window(json, config); },
      .set_gguf = [](ModelConfig&) {}};
  return kFamily;
}

}  // namespace zipage
