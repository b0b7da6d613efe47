#include "backend/cpu/compression/window.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zipage::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kLogitsAtOnce = 64 * 1024;  // floats: half a second-level cache

int64_t rows_at_once(int64_t num_queries, int64_t group, int64_t padded) {
  const int64_t queries = std::clamp<int64_t>(kLogitsAtOnce / (padded * group), 1, num_queries);
  return queries * group;
}

}  // namespace

int64_t window_workspace_floats(const WorkspaceShape& s) {
  const int64_t padded = round_to_tile(s.max_length);
  const int64_t all_rows = s.num_queries * s.group;
  // A shorter request takes more rows at once, but never more than kLogitsAtOnce floats of them.
  const int64_t logits = std::min(all_rows * padded, std::max(kLogitsAtOnce, s.group * padded));
  return padded + s.head_dim * kTile + all_rows * s.head_dim + logits;
}

WindowAttention::WindowAttention(const CompressionKernels& kernels,
                                 const PagedKvView& kv,
                                 const HeadItem& item,
                                 int32_t slot,
                                 int32_t length,
                                 const int32_t* table,
                                 float scale,
                                 float* workspace)
    : kernels_(kernels),
      kv_(kv),
      item_(item),
      slot_(slot),
      length_(length),
      padded_(round_to_tile(length)),
      keys_(kv, table, item),
      // Softmax by powers of two: 2^(x log2 e) = e^x.
      query_scale_(scale * 1.4426950408889634f * keys_.scale),
      group_(kv.num_q_heads / kv.num_kv_heads),
      num_queries_(std::min(kv.window_size, length)) {
  const int64_t rows = rows_at_once(num_queries_, group_, padded_);
  queries_at_once_ = static_cast<int32_t>(rows / group_);
  row_ = workspace;
  tile_ = row_ + padded_;
  queries_ = tile_ + int64_t{kv.head_dim} * kTile;
  logits_ = queries_ + rows * kv.head_dim;
}

void WindowAttention::load_queries(int32_t begin, int32_t end) {
  const int64_t head_bytes = kv_.head_dim * element_bytes(kv_.query_dtype);
  float* to = queries_;
  for (int32_t u = begin; u < end; ++u) {
    // The query of slot index i lies at ring place i % window.
    const int32_t place = (length_ - num_queries_ + u) % kv_.window_size;
    const std::byte* from = kv_.layers[item_.layer].queries +
                            ((int64_t{slot_} * kv_.window_size + place) * kv_.num_q_heads +
                             int64_t{item_.head} * group_) *
                                head_bytes;
    const int64_t count = int64_t{group_} * kv_.head_dim;
    kernels_.load(from, kv_.query_dtype, count, query_scale_, to);
    to += count;
  }
}

void WindowAttention::prepare(int32_t begin, int32_t end) {
  load_queries(begin, end);
  first_query_ = begin;
  const int rows = (end - begin) * group_;
  for (int32_t first = 0; first < length_;) {
    const int32_t in_block = keys_.block_size - first % keys_.block_size;
    const int32_t count = std::min({kTile, in_block, length_ - first});
    kernels_.pack_tile(keys_.entry(first), kv_.dtype, count, kv_.head_dim, 1.0f, tile_);
    // Columns from `count` on are overwritten by the next tile, or masked.
    if (first + kTile <= padded_) {
      kernels_.dot_tile(queries_, rows, kv_.head_dim, tile_, logits_ + first, padded_);
    } else {
      for (int r = 0; r < rows; ++r) {
        float values[kTile];
        kernels_.dot_tile(queries_ + int64_t{r} * kv_.head_dim, 1, kv_.head_dim, tile_, values,
                          kTile);
        std::copy(values, values + count, logits_ + r * padded_ + first);
      }
    }
    first += count;
  }
  mask_future(begin, end);
}

void WindowAttention::mask_future(int32_t begin, int32_t end) {
  for (int32_t u = begin; u < end; ++u) {
    const int32_t at = length_ - num_queries_ + u;  // sees entries <= at
    for (int32_t g = 0; g < group_; ++g) {
      float* row = logits_ + (int64_t{u - begin} * group_ + g) * padded_;
      std::fill(row + at + 1, row + padded_, -kInf);
    }
  }
}

void WindowAttention::max_log2(int32_t u, const float* log2_weights, float* out) {
  for (int32_t g = 0; g < group_; ++g) {
    const float* row = logits_ + (int64_t{u - first_query_} * group_ + g) * padded_;
    const float top = kernels_.max(row, padded_);
    const float log2_sum = std::log2(kernels_.sum_exp2(row, -top, padded_));
    const float weight = log2_weights == nullptr ? 0.0f : log2_weights[u];
    kernels_.max_shifted(out, row, weight - (top + log2_sum), padded_);
  }
}

}  // namespace zipage::cpu
