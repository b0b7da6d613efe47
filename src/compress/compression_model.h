// What compression has to know of the model.
#pragma once

#include <cstdint>

namespace zipage {

struct CompressionModel {
  int32_t num_layers = 0;
  int32_t num_q_heads = 0;   // local to this device
  int32_t num_kv_heads = 0;  // local to this device
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;
  float attention_scale = 0;  // usually 1 / sqrt(head_dim)
  const float* rope_cos_sin =
      nullptr;  // [max_positions, rotary_dim] device memory, as in AttentionPrepareArgs
};

}  // namespace zipage
