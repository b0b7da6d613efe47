// What the attention driver asks of the kernels of one ISA. Plain data and function pointers: the
// kernels are compiled once per instruction set (attention_kernels.cc, runtime/kernel_set.h).
//
// Attention is cut into spans: max(1, kSpanEntries / block_size) whole blocks of a row's table,
// counted from its start. A span yields a partial per query; partials are combined in the order of
// the spans. Where a span begins and ends depends on block_size alone, so a query's sums never
// depend on the batch, the chunk or the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace zipage::cpu {

inline constexpr int kSpanEntries = 256;
// Rows of f32 that the kernels widen at a time: a tile of K or V that stays in the first-level
// cache.
inline constexpr int kTileEntries = 32;
// Queries of a work item: (tokens) x (heads of one group). Large enough to pay for the widening,
// small enough for their scores and sums to stay in the second-level cache.
inline constexpr int kMaxItemQueries = 48;
// Floats are laid out in rows of a multiple of this; the rest of a row is zero.
inline constexpr int kPadding = 16;

// The state of the online softmax of `num_queries` queries: weights are 2^(score - max), scores in
// base 2.
struct SoftmaxState {
  float* max;   // [num_queries]
  float* sum;   // [num_queries]
  float* mean;  // [num_queries, padded_dim] sum of weight * v
};

// One span of one KV head against a tile of queries.
struct SpanTask {
  DType dtype;         // of k and v: f32, f16 or bf16
  const std::byte* k;  // of block 0 at this KV head: [block_size, head_dim]
  const std::byte* v;
  int64_t block_bytes;      // from one block to the next
  const int32_t* blocks;    // ids of the span's blocks
  const std::byte* next_k;  // the first entry of the next span, or null: a hint
  int32_t block_size;       // entries
  int32_t head_dim;
  int32_t padded_dim;  // head_dim rounded up to kPadding
  int32_t num_queries;
  const float* queries;   // [num_queries, padded_dim], times scale * log2(e)
  const int32_t* limits;  // [num_queries] entries of the span that the query sees: 1 and up
  float* scores;          // scratch [num_queries, score_stride]
  int32_t score_stride;   // at least the entries of a span rounded up to kPadding
  float* tile;            // scratch [kTileEntries, padded_dim]
};

// One head's vector on its way to the cache: optional RMS norm, then RoPE by half-split pairs.
struct HeadTask {
  const float* x;  // [head_dim]
  int32_t head_dim;
  const float* norm;  // [head_dim] or null
  float norm_eps;
  const float*
      cos_sin;  // [rotary_dim]: cos of the rotary_dim / 2 angles, then their sin; null: no rotation
  int32_t rotary_dim;
  float* out;  // [head_dim]; may alias x
};

struct AttentionKernels {
  void (*attend)(const SpanTask& task, const SoftmaxState& out);
  // state = state joined with a later span's partial.
  void (*combine)(int32_t num_queries,
                  int32_t padded_dim,
                  const SoftmaxState& partial,
                  const SoftmaxState& state);
  // out[0, count) = mean / sum * scale.
  void (*finish)(const float* mean, float sum, float scale, int32_t count, float* out);
  void (*prepare_head)(const HeadTask& task);
  // to[0, count) = from[0, count) * scale as f32, f16 or bf16.
  void (*store)(const float* from, int32_t count, float scale, DType dtype, std::byte* to);
};

}  // namespace zipage::cpu
