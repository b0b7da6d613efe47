// PagedKvView: where the KV cache and the per-slot memory of compression lie. Plain data;
// kvcache/kv_cache.h owns the storage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace zipage {

// Pages of one layer. Eviction is per KV head, so a head's tokens of a block are one contiguous
// run. Entry (block, head, offset) of k or v is head_dim elements of `dtype`.
struct LayerKvView {
  // [num_blocks, num_kv_heads, block_size, head_dim]
  std::byte* k = nullptr;
  // Same shape.
  std::byte* v = nullptr;
  // [num_kv_heads], or null: 1 (never per block: entries move).
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  // [num_slots, window_size, num_q_heads, head_dim] of `query_dtype`: after norm and RoPE; the
  // query of slot index i lies at ring place i % window.
  std::byte* queries = nullptr;
  // F: [num_slots, num_kv_heads, score_capacity]; null if the policy has none.
  float* scores = nullptr;
  // True token positions: same shape as scores; null until needed.
  int32_t* positions = nullptr;
};

struct PagedKvView {
  // Of k and v.
  DType dtype = DType::kF32;
  // Of queries.
  DType query_dtype = DType::kF32;
  int32_t num_layers = 0;
  int32_t num_blocks = 0;
  // In tokens.
  int32_t block_size = 0;
  // Of this device's share of the model.
  int32_t num_kv_heads = 0;
  // Local to this device; a multiple of num_kv_heads.
  int32_t num_q_heads = 0;
  int32_t head_dim = 0;
  // Compression slots (M).
  int32_t num_slots = 0;
  // w
  int32_t window_size = 0;
  // N_max * block_size entries.
  int32_t score_capacity = 0;
  // [num_layers], host memory.
  const LayerKvView* layers = nullptr;
};

}  // namespace zipage
