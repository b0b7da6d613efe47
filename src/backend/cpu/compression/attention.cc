// Alg. 1 (attention score) and peak attention F (method.md 3.2).
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/compression/window.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/kernel_set.h"

namespace zipage::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int32_t kMaxWindow = 1024;

void require_queries(const PagedKvView& kv, int32_t layer) {
  require_plain_kv(kv.dtype);
  require_plain_kv(kv.query_dtype);
  if (kv.layers[layer].queries == nullptr) {
    fail_invalid("the KV cache was planned without a query cache, which this policy reads");
  }
  if (kv.window_size > kMaxWindow) {
    fail_invalid("window_size {} is above {}", kv.window_size, kMaxWindow);
  }
}

WorkspaceShape shape_of(const PagedKvView& kv, int64_t max_length) {
  return {kv.window_size, kv.num_q_heads / kv.num_kv_heads, kv.head_dim, max_length};
}

}  // namespace

void attention_score(const AttentionScoreArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_jobs == 0) return;
  require_queries(kv, args.layer_begin);
  const CompressionKernels& kernels = kernel_set(context.isa).compression;
  const int64_t stride = window_workspace_floats(shape_of(kv, batch.max_length));
  for_each_head(args, context, [&](const HeadItem& item, int thread) {
    const int32_t n = batch.lengths[item.job];
    const int32_t* table = batch.block_tables + int64_t{item.job} * batch.block_table_stride;
    WindowAttention window(kernels, kv, item, batch.slots[item.job], n, table, args.scale,
                           args.workspace + thread * stride);
    const int32_t w = window.num_queries();
    const int64_t padded = round_to_tile(n);
    float* score = args.score + item.row * args.capacity;
    float* p = window.row();
    std::fill(score, score + n, 0.0f);
    // One query at a time from here: the mean is taken over u after the max over the heads. The
    // keys are read once per queries_at_once() queries.
    for (int32_t begin = 0; begin < w; begin += window.queries_at_once()) {
      const int32_t end = std::min(begin + window.queries_at_once(), w);
      window.prepare(begin, end);
      for (int32_t u = begin; u < end; ++u) {
        std::fill(p, p + padded, kMinusInf);
        window.max_log2(u, nullptr, p);
        kernels.exp2(p, padded);
        for (int32_t i = 0; i < n; ++i) score[i] += p[i];
      }
    }
    const float mean = 1.0f / static_cast<float>(w);
    for (int32_t i = 0; i < n; ++i) score[i] *= mean;
  });
}

void peak_update(const PeakUpdateArgs& args, CpuContext& context) {
  const PeakUpdateBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_updates == 0) return;
  require_queries(kv, args.layer_begin);
  if (args.scratch == nullptr && kv.layers[args.layer_begin].scores == nullptr) {
    fail_invalid("the KV cache was planned without scores F, which policy peak keeps");
  }
  const CompressionKernels& kernels = kernel_set(context.isa).compression;
  const int64_t stride = window_workspace_floats(shape_of(kv, batch.max_length));
  for_each_head(
      batch.num_updates, args.layer_begin, args.num_layers, kv.num_kv_heads, context,
      [&](const HeadItem& item, int thread) {
        const int32_t n = batch.lengths[item.job];
        const int32_t slot = batch.slots[item.job];
        const int32_t previous = args.scratch == nullptr ? batch.previous_lengths[item.job] : 0;
        const int32_t* table = batch.block_tables + int64_t{item.job} * batch.block_table_stride;
        WindowAttention window(kernels, kv, item, slot, n, table, args.scale,
                               args.workspace + thread * stride);
        const int32_t w = window.num_queries();
        const int64_t padded = round_to_tile(n);
        float log2_weights[kMaxWindow];  // 2^(-(L-1-u)/H)
        for (int32_t u = 0; u < w; ++u) {
          log2_weights[u] = -static_cast<float>(w - 1 - u) / args.half_life;
        }
        float* p = window.row();
        std::fill(p, p + padded, kMinusInf);
        for (int32_t begin = 0; begin < w; begin += window.queries_at_once()) {
          const int32_t end = std::min(begin + window.queries_at_once(), w);
          window.prepare(begin, end);
          for (int32_t u = begin; u < end; ++u) window.max_log2(u, log2_weights, p);
        }
        kernels.exp2(p, padded);
        float* f = args.scratch != nullptr
                       ? args.scratch + item.row * args.capacity
                       : kv.layers[item.layer].scores + slot_row(kv, slot, item.head);
        const float decay = std::exp2(-static_cast<float>(n - previous) / args.half_life);
        for (int32_t i = 0; i < previous; ++i) f[i] = std::max(decay * f[i], p[i]);
        std::copy(p + previous, p + n, f + previous);  // new entries start at 0
      });
}

}  // namespace zipage::cpu
