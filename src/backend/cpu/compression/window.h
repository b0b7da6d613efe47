// Attention of the last queries of a request over all its keys, in the log2 domain: shared by Alg.
// 1 and peak attention.
#pragma once

#include <cstdint>

#include "backend/cpu/compression/compression_kernels.h"
#include "backend/cpu/compression/layout.h"

namespace zipage::cpu {

// Works through the window a few queries at a time, so that the logits stay in the cache. The
// result does not depend on how many.
class WindowAttention {
 public:
  // length: n entries. workspace: window_workspace_floats() of this thread.
  WindowAttention(const CompressionKernels& kernels,
                  const PagedKvView& kv,
                  const HeadItem& item,
                  int32_t slot,
                  int32_t length,
                  const int32_t* table,
                  float scale,
                  float* workspace);

  int32_t num_queries() const { return num_queries_; }
  // Logits of queries [begin, end) of the window, at most queries_at_once().
  void prepare(int32_t begin, int32_t end);
  // out[i] = max(out[i], log2 of max over the group's heads of weight * softmax(q_u K^T scale)_i)
  // for a prepared query u. log2_weights: one a query of the window, or null: weight 1. out:
  // round_to_tile(length) floats, -inf at the first call.
  void max_log2(int32_t u, const float* log2_weights, float* out);
  int32_t queries_at_once() const { return queries_at_once_; }
  float* row() const { return row_; }  // round_to_tile(length) floats for the caller

 private:
  void load_queries(int32_t begin, int32_t end);
  void mask_future(int32_t begin, int32_t end);

  const CompressionKernels& kernels_;
  const PagedKvView& kv_;
  const HeadItem& item_;
  const int32_t slot_;
  const int32_t length_;
  const int64_t padded_;
  const KeyPages keys_;
  const float query_scale_;
  const int32_t group_;
  const int32_t num_queries_;
  int32_t queries_at_once_;
  int32_t first_query_ = 0;  // of the prepared ones
  float* row_;               // [padded]
  float* tile_;              // [head_dim, kTile]
  float* queries_;           // [queries_at_once * group, head_dim]
  float* logits_;            // [queries_at_once * group, padded]
};

}  // namespace zipage::cpu
