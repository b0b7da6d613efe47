// Llama 1, 2 and 3.x, and what took its shape: SmolLM2, DeepSeek-R1-Distill-Llama, Vicuna, ...
#include "model/config.h"
#include "model/families/family.h"
#include "weights/json.h"

namespace zipage {
namespace {

void read_json(const JsonValue& json, ModelConfig& config) {
  const auto attention_bias = json.find("attention_bias");
  config.attention_bias = attention_bias && attention_bias->as_bool();
  config.output_bias = config.attention_bias;
  const auto mlp_bias = json.find("mlp_bias");
  config.mlp_bias = mlp_bias && mlp_bias->as_bool();
  refuse_sliding_window(json, config);
}

}  // namespace

const ModelFamily& llama_family() {
  static constexpr ModelFamily kFamily = {.architecture = "LlamaForCausalLM",
                                          .model_type = "llama",
                                          .gguf_architecture = "llama",
                                          .default_head_dim = 0,
                                          .kv_heads_optional = true,
                                          .gguf_interleaved_qk = true,
                                          .read_json = read_json,
                                          .set_gguf = [](ModelConfig&) {}};
  return kFamily;
}

}  // namespace zipage
