// The small steps between attention, redundancy and selection
// (method.md 3.1.2, 3.1.3, 3.1.5, 3.1.6, 3.2, 3.3).
#include <algorithm>
#include <limits>

#include "backend/cpu/compression/layout.h"
#include "backend/cpu/ops.h"

namespace zipage::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

const float* stored_scores(const CompressionOpArgs& args, const HeadItem& item) {
  const PagedKvView& kv = *args.kv;
  if (kv.layers[item.layer].scores == nullptr) {
    fail_invalid("the KV cache was planned without scores F, which this policy reads");
  }
  return kv.layers[item.layer].scores + slot_row(kv, args.batch->slots[item.job], item.head);
}

// Contract of PlainScoreArgs.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t hash_step(uint64_t h, int32_t part) {
  return mix(h + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(part + 1));
}

}  // namespace

void global_score(const GlobalScoreArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t history = std::min(batch.histories[item.job], batch.lengths[item.job]);
    if (history == 0) return;
    const float* f = stored_scores(args, item);
    float* score = args.score + item.row * args.capacity;
    for (int32_t i = 0; i < history; ++i) {
      const float old = args.decay * f[i];
      score[i] = args.reduce == ScoreReduce::kMax ? std::max(old, score[i]) : old + score[i];
    }
  });
}

void max_pool(const MaxPoolArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  if (args.width < 1 || args.width % 2 == 0) {
    fail_invalid("pooling width {} is not an odd number", args.width);
  }
  const int32_t reach = args.width / 2;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    const float* score = args.score + item.row * args.capacity;
    float* out = args.out + item.row * args.capacity;
    if (args.only_first && batch.histories[item.job] > 0) {
      std::copy(score, score + n, out);
      return;
    }
    for (int32_t i = 0; i < n; ++i) {
      const int32_t begin = std::max(i - reach, 0);
      out[i] = *std::max_element(score + begin, score + std::min(i + reach + 1, n));
    }
  });
}

void normalized_history(const NormalizedHistoryArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    const float* f = args.history != nullptr ? args.history + item.row * args.capacity
                                             : stored_scores(args, item);
    float* score = args.score + item.row * args.capacity;
    float sum = 0;
    for (int32_t begin = 0; begin < n; begin += args.kv->block_size) {  // per block, ascending
      float block_sum = 0;
      for (int32_t i = begin; i < std::min(begin + args.kv->block_size, n); ++i) block_sum += f[i];
      sum += block_sum;
    }
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    for (int32_t i = 0; i < n; ++i) score[i] = f[i] * inverse;
  });
}

void combine(const CombineArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  if (args.attention == nullptr && args.redundancy == nullptr) {
    fail_invalid("combine: neither attention nor redundancy is given");
  }
  const float attention_weight = args.combine == Combine::kConvex ? args.weight : 1.0f;
  const float redundancy_weight =
      args.combine == Combine::kConvex ? 1.0f - args.weight : args.weight;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    const int64_t begin = item.row * args.capacity;
    float* score = args.score + begin;
    if (args.redundancy == nullptr) {
      std::copy(args.attention + begin, args.attention + begin + n, score);
      return;
    }
    const float* r = args.redundancy + begin;
    if (args.attention == nullptr) {
      for (int32_t i = 0; i < n; ++i) score[i] = -r[i];
      return;
    }
    const float* s = args.attention + begin;
    for (int32_t i = 0; i < n; ++i) {
      score[i] = attention_weight * s[i] - redundancy_weight * r[i];
    }
  });
}

void plain_score(const PlainScoreArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  if (args.policy != KvPolicy::kRecency && args.policy != KvPolicy::kRandom) {
    fail_invalid("policy {} is not scored by position alone", to_string(args.policy));
  }
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    float* score = args.score + item.row * args.capacity;
    if (args.policy == KvPolicy::kRecency) {
      for (int32_t i = 0; i < n; ++i) score[i] = static_cast<float>(i);
      return;
    }
    const EntryPositions positions(batch, *args.kv, item);
    const uint64_t head = hash_step(hash_step(batch.seeds[item.job], item.layer), item.head);
    for (int32_t i = 0; i < n; ++i) {
      score[i] = static_cast<float>(hash_step(head, positions[i]) >> 40) * 0x1p-24f;
    }
  });
}

void protect(const ProtectArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    float* score = args.score + item.row * args.capacity;
    std::fill(score + std::max(n - args.newest, 0), score + n, kInf);
    const int32_t prompt = args.protect_prompt ? batch.prompt_lengths[item.job] : 0;
    const int32_t first = std::max(args.sinks, prompt);
    if (first <= 0) return;
    const EntryPositions positions(batch, *args.kv, item);
    for (int32_t i = 0; i < n && positions[i] < first; ++i) score[i] = kInf;  // positions ascend
  });
}

}  // namespace zipage::cpu
