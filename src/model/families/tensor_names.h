// How files call the tensors of a model.
#pragma once

#include <cstdint>
#include <string>

#include "weights/weight_source.h"

namespace zipage {

enum class TensorRole {
  // Of the model.
  kEmbedding,
  kFinalNorm,
  kLmHead,
  // Of a layer.
  kInputNorm,
  kPostAttentionNorm,
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
};

// "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight". `layer` is ignored for the
// roles of the model. All families share these names.
std::string tensor_name(WeightNaming naming, TensorRole role, int32_t layer = 0);

}  // namespace zipage
