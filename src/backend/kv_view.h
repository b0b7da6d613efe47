// Where the KV cache and the memory of compression lie. Plain data: the storage belongs to kvcache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace zipage {

// Pages of one layer. Eviction is per KV head, so a head's tokens of a block are one contiguous
// run. Entry (block, head, offset) of k or v is head_dim elements of `dtype`.
struct LayerKvView {
  std::byte* k = nullptr;          // [num_blocks, num_kv_heads, block_size, head_dim]
  std::byte* v = nullptr;          // same shape
  const float* k_scale = nullptr;  // [num_kv_heads], or null: 1 (never per block: entries move)
  const float* v_scale = nullptr;
  std::byte* queries =
      nullptr;  // [num_slots, window_size, num_q_heads, head_dim] of `query_dtype`: after
                // norm and RoPE; the query of slot index i lies at ring place i % window
  float* scores =
      nullptr;  // F: [num_slots, num_kv_heads, score_capacity]; null if the policy has none
  int32_t* positions = nullptr;  // true token positions: same shape as scores; null until needed
};

struct PagedKvView {
  DType dtype = DType::kF32;        // of k and v
  DType query_dtype = DType::kF32;  // of queries
  int32_t num_layers = 0;
  int32_t num_blocks = 0;
  int32_t block_size = 0;    // tokens
  int32_t num_kv_heads = 0;  // local to this device
  int32_t num_q_heads = 0;   // local to this device; a multiple of num_kv_heads
  int32_t head_dim = 0;
  int32_t num_slots = 0;                // compression slots (M)
  int32_t window_size = 0;              // w
  int32_t score_capacity = 0;           // N_max * block_size entries
  const LayerKvView* layers = nullptr;  // [num_layers], host memory
};

}  // namespace zipage
