#include "model/families/tensor_names.h"

#include <fmt/format.h>

#include "base/check.h"

namespace zipage {
namespace {

struct Names {
  const char* hugging_face;
  const char* gguf;
  bool of_layer;
};

Names names(TensorRole role) {
  switch (role) {
    case TensorRole::kEmbedding:
      return {"model.embed_tokens.weight", "token_embd.weight", false};
    case TensorRole::kFinalNorm:
      return {"model.norm.weight", "output_norm.weight", false};
    case TensorRole::kLmHead:
      return {"lm_head.weight", "output.weight", false};
    case TensorRole::kInputNorm:
      return {"input_layernorm.weight", "attn_norm.weight", true};
    case TensorRole::kPostAttentionNorm:
      return {"post_attention_layernorm.weight", "ffn_norm.weight", true};
    case TensorRole::kQ:
      return {"self_attn.q_proj.weight", "attn_q.weight", true};
    case TensorRole::kK:
      return {"self_attn.k_proj.weight", "attn_k.weight", true};
    case TensorRole::kV:
      return {"self_attn.v_proj.weight", "attn_v.weight", true};
    case TensorRole::kO:
      return {"self_attn.o_proj.weight", "attn_output.weight", true};
    case TensorRole::kQBias:
      return {"self_attn.q_proj.bias", "attn_q.bias", true};
    case TensorRole::kKBias:
      return {"self_attn.k_proj.bias", "attn_k.bias", true};
    case TensorRole::kVBias:
      return {"self_attn.v_proj.bias", "attn_v.bias", true};
    case TensorRole::kOBias:
      return {"self_attn.o_proj.bias", "attn_output.bias", true};
    case TensorRole::kQNorm:
      return {"self_attn.q_norm.weight", "attn_q_norm.weight", true};
    case TensorRole::kKNorm:
      return {"self_attn.k_norm.weight", "attn_k_norm.weight", true};
    case TensorRole::kGate:
      return {"mlp.gate_proj.weight", "ffn_gate.weight", true};
    case TensorRole::kUp:
      return {"mlp.up_proj.weight", "ffn_up.weight", true};
    case TensorRole::kDown:
      return {"mlp.down_proj.weight", "ffn_down.weight", true};
    case TensorRole::kGateBias:
      return {"mlp.gate_proj.bias", "ffn_gate.bias", true};
    case TensorRole::kUpBias:
      return {"mlp.up_proj.bias", "ffn_up.bias", true};
    case TensorRole::kDownBias:
      return {"mlp.down_proj.bias", "ffn_down.bias", true};
  }
  check_failed(__FILE__, __LINE__, "unknown tensor role");
}

}  // namespace

std::string tensor_name(WeightNaming naming, TensorRole role, int32_t layer) {
  const Names name = names(role);
  const bool gguf = naming == WeightNaming::kGguf;
  const char* base = gguf ? name.gguf : name.hugging_face;
  if (!name.of_layer) return base;
  return fmt::format("{}.{}.{}", gguf ? "blk" : "model.layers", layer, base);
}

}  // namespace zipage
