// Jobs of all kinds in one pool, and the method's result for them in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "backend/compression_case.h"
#include "compress/compressor.h"
#include "oracle/compression_oracle.h"

namespace zipage::testing {

inline constexpr int kBlock = 16;
inline constexpr int kWindow = 4;
inline constexpr int kMaxBlocks = 4;  // N_max of the largest budget
inline constexpr float kScale = 0.125f;

inline CaseShape shape_of_tests() {
  CaseShape shape;
  shape.num_layers = 3;
  shape.block_size = kBlock;
  shape.window_size = kWindow;
  shape.score_blocks = kMaxBlocks;
  shape.num_slots = 6;
  return shape;
}

// First and later compressions of two budgets, one prompt longer than the score cache, one longer
// than its own N_max only.
inline std::vector<CaseJob> case_jobs() {
  return {{.slot = 0,
           .length = 64,
           .keep = 48,
           .prompt_length = 20,
           .seed = 1,
           .source = {4, 1, 7, 2},
           .target = {4, 1, 7}},
          {.slot = 1,
           .length = 64,
           .keep = 48,
           .history = 48,
           .prompt_length = 11,
           .source = {8, 3, 0, 5},
           .target = {10, 11, 0}},
          {.slot = 2,
           .length = 48,
           .keep = 32,
           .history = 32,
           .prompt_length = 7,
           .source = {12, 13, 14},
           .target = {12, 13}},
          {.slot = 3,
           .length = 96,
           .keep = 48,
           .prompt_length = 90,
           .source = {15, 16, 17, 18, 19, 20},
           .target = {15, 16, 17}},
          {.slot = 5,
           .length = 64,
           .keep = 32,
           .prompt_length = 60,
           .source = {21, 22, 23, 24},
           .target = {25, 26}}};
}

inline CompressionOptions options_of(KvPolicy policy) {
  CompressionOptions o;
  o.kv_policy = policy;
  o.kv_budget = 48;
  o.window_size = kWindow;
  o.protect_newest = 6;
  o.attention_half_life = 24;
  return o;
}

inline std::vector<CompressJob> jobs_of(const CompressionCase& c,
                                        const std::vector<KvPolicy>& policies) {
  std::vector<CompressJob> jobs;
  for (size_t i = 0; i < c.jobs().size(); ++i) {
    const CaseJob& from = c.jobs()[i];
    CompressJob job;
    job.sequence = 100 + i;
    job.job_id = i;
    job.slot = SlotId(from.slot);
    job.policy = policies[i % policies.size()];
    job.length = from.length;
    job.keep = from.keep;
    job.history = from.history;
    job.position_offset = c.position_offset(static_cast<int>(i));
    job.prompt_length = from.prompt_length;
    job.max_blocks = from.keep / kBlock + 1;
    for (const int block : from.source) job.source.emplace_back(block);
    for (const int block : from.target) job.target.emplace_back(block);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

inline CompressionModel model_of(const CompressionCase& c) {
  const CaseShape& s = c.shape();
  return {s.num_layers, s.num_kv_heads * s.group, s.num_kv_heads, s.head_dim, s.rotary_dim, kScale,
          c.rope()};
}

// plan() and run() as the engine calls them; the first failure is thrown.
inline void compress(Compressor& compressor, std::vector<CompressJob> jobs, Stream& stream) {
  for (const PlannedBatch& batch : compressor.plan(std::move(jobs), stream)) {
    compressor.run(batch, stream);
  }
}

inline CompressorLimits limits_of_tests() {
  CompressorLimits limits;
  limits.block_size = kBlock;
  limits.max_blocks_per_seq = kMaxBlocks;
  limits.max_model_len = 100;
  limits.max_launch_jobs = 8;
  limits.max_batch_jobs = 2;
  return limits;
}

// The whole of method.md 3 for one head. `f` is the new F (before selection).
inline oracle::Row oracle_score(const CompressionCase& c,
                                const CompressionOptions& given,
                                int j,
                                int l,
                                int h,
                                oracle::Row& f) {
  const CompressionOptions o = given.resolved(kBlock).value();
  const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
  const auto keys = c.keys(j, l, h);
  const auto positions = c.positions(j, l, h);
  const auto turned = oracle::derotate(keys, positions, c.rope_rows(), c.shape().rotary_dim);
  const int n = job.length;
  auto history = c.history(j, l, h);
  const bool attends = o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kAttention ||
                       o.kv_policy == KvPolicy::kRedundancy || o.kv_policy == KvPolicy::kGlobal;
  oracle::Row s, r;
  bool has_r = false;
  if (attends) {
    s = oracle::attention_score(c.window(j, l, h), keys, kScale);
    if (o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kGlobal) {
      history.resize(static_cast<size_t>(job.history));
      s = oracle::global_score(s, history, o.score_decay, o.score_reduce);
      f = s;
    }
    const bool pools =
        o.pooling == Pooling::kAlways || (o.pooling == Pooling::kFirst && job.history == 0);
    if (o.kv_policy != KvPolicy::kAttention && pools) s = oracle::max_pool(s, o.pooling_width);
    if (o.kv_policy == KvPolicy::kPaper || o.kv_policy == KvPolicy::kRedundancy) {
      const int span = o.redundancy == Redundancy::kLightning ? kBlock : n;
      r = oracle::redundancy(o.derotate ? turned : keys, span, o.similarity_threshold,
                             o.redundancy_temperature)
              .score;
      has_r = true;
    }
  } else if (o.kv_policy == KvPolicy::kPeak) {
    const bool without = job.history == 0 && n > job.keep + kBlock;
    f = without ? oracle::peak_update(c.window(j, l, h), keys, kScale, o.attention_half_life, {}, 0)
                : history;
    f.resize(static_cast<size_t>(n));
    s = oracle::normalized_history(f);
    r = oracle::center_redundancy(turned, o.redundancy_temperature);
    has_r = true;
  } else {
    for (int i = 0; i < n; ++i) s.push_back(i);  // recency
  }
  const auto score = oracle::combine(&s, has_r ? &r : nullptr, *o.score_weight, o.combine);
  return oracle::protect(score, positions, std::max(o.window_size, *o.protect_newest),
                         o.sink_tokens, o.protect_prompt, job.prompt_length);
}

// The slots that a job kept, from the positions in the pool.
inline std::vector<int> kept_slots(
    const CompressionCase& c, const CompressionCase::Image& after, int j, int l, int h) {
  const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
  const auto positions = c.positions(j, l, h);
  std::vector<int> slots;
  for (int i = 0; i < job.keep; ++i) {
    const int position =
        after
            .positions[static_cast<size_t>(l)][c.slot_offset(job.slot, h) + static_cast<size_t>(i)];
    const auto found = std::lower_bound(positions.begin(), positions.end(), position);
    EXPECT_TRUE(found != positions.end() && *found == position) << position;
    slots.push_back(static_cast<int>(found - positions.begin()));
  }
  return slots;
}

class CompressorTest : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Body>
  static void for_each_head(const CompressionCase& c, Body&& body) {
    for (int j = 0; j < static_cast<int>(c.jobs().size()); ++j) {
      for (int l = 0; l < c.shape().num_layers; ++l) {
        for (int h = 0; h < c.shape().num_kv_heads; ++h) {
          SCOPED_TRACE(::testing::Message() << "job " << j << " layer " << l << " head " << h);
          body(j, l, h);
        }
      }
    }
  }

  // The kept set is the oracle's, but for entries whose scores f32 cannot tell from the last one
  // kept; keys, values, F and positions are a gather of that set.
  static void expect_compressed(const CompressionCase& c,
                                const CompressionCase::Image& after,
                                const CompressionOptions& options,
                                bool has_f) {
    CompressionCase::Image want = c.before();
    const auto& old = c.before();
    int near = 0;
    for_each_head(c, [&](int j, int l, int h) {
      const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
      oracle::Row f;
      const auto score = oracle_score(c, options, j, l, h, f);
      const auto slots = kept_slots(c, after, j, l, h);
      ASSERT_TRUE(std::is_sorted(slots.begin(), slots.end()));
      auto sorted = score;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const double last = sorted[static_cast<size_t>(job.keep) - 1];
      for (int i = 0; i < job.length; ++i) {
        const bool kept = std::binary_search(slots.begin(), slots.end(), i);
        const double s = score[static_cast<size_t>(i)];
        if (std::fabs(s - last) <= 1e-5 * std::fabs(last)) {
          ++near;
        } else {
          ASSERT_EQ(kept, s > last) << "slot " << i << " score " << s << " of " << last;
        }
      }
      const auto layer = static_cast<size_t>(l);
      const auto positions = c.positions(j, l, h);
      for (size_t i = 0; i < slots.size(); ++i) {
        const int from = slots[i];
        const size_t to_at =
            c.entry_offset(job.target[i / kBlock], h, static_cast<int>(i) % kBlock);
        const size_t from_at =
            c.entry_offset(job.source[static_cast<size_t>(from / kBlock)], h, from % kBlock);
        std::copy_n(&old.k[layer][from_at], c.entry_bytes(), &want.k[layer][to_at]);
        std::copy_n(&old.v[layer][from_at], c.entry_bytes(), &want.v[layer][to_at]);
        const size_t at = c.slot_offset(job.slot, h) + i;
        want.positions[layer][at] = positions[static_cast<size_t>(from)];
        if (has_f) {
          ASSERT_NEAR(after.scores[layer][at], f[static_cast<size_t>(from)],
                      1e-8 + 2e-5 * f[static_cast<size_t>(from)]);
        }
      }
    });
    EXPECT_TRUE(after.k == want.k);
    EXPECT_TRUE(after.v == want.v);
    EXPECT_TRUE(after.positions == want.positions);
    // One entry a head is the last one kept; a pooled score is shared by up to pooling_width
    // entries.
    EXPECT_LE(near, 2 * 3 * 5 * (options.pooling_width + 1));
  }
};

}  // namespace zipage::testing
