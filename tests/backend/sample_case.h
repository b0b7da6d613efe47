// Rows of logits for the sampler, and everything that a SampleArgs points to.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "backend/attention_case.h"
#include "backend/cpu/ops.h"

namespace zipage {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Rows of logits and everything a SampleArgs points to.
struct SampleCase {
  explicit SampleCase(int32_t num_rows, int32_t vocab_size, uint32_t seed = 1, float deviation = 2)
      : vocab(vocab_size), rows(static_cast<size_t>(num_rows)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    logits.resize(static_cast<size_t>(num_rows) * vocab);
    for (float& x : logits) x = normal(random);
  }

  SampleArgs args() {
    SampleArgs a{};
    a.logits = logits.data();
    a.num_rows = static_cast<int32_t>(rows.size());
    a.vocab = vocab;
    a.rows = rows.data();
    a.bias_ids = bias_ids.data();
    a.bias_values = bias_values.data();
    a.token_counts = counts.data();
    a.allowed_masks = masks.data();
    return a;
  }

  struct Result {
    std::vector<int32_t> tokens, ranks, top_ids;
    std::vector<float> logprobs, top_logprobs;
    bool operator==(const Result&) const = default;
  };

  // Runs on copies of the logits, which the op may overwrite, and of the counts.
  Result run(cpu::Isa isa, int num_threads, int32_t max_logprobs = 0) {
    ThreadPool pool(num_threads);
    cpu::CpuContext context = make_context(pool, isa);
    Backend::Limits limits{};
    limits.max_rows = static_cast<int32_t>(rows.size());
    limits.vocab = vocab;
    const size_t bytes = cpu::sample_workspace_bytes(limits, context);
    std::vector<uint8_t> workspace(bytes + 64, kGuardByte);
    std::vector<float> copy = logits;
    counted = counts;
    SampleArgs a = args();
    a.logits = copy.data();
    a.token_counts = counted.data();
    Result result;
    result.tokens.assign(rows.size() + 1, -7);
    result.ranks.assign(rows.size() + 1, -7);
    result.logprobs.assign(rows.size() + 1, 7.0f);
    result.top_ids.assign(rows.size() * max_logprobs + 1, -7);
    result.top_logprobs.assign(rows.size() * max_logprobs + 1, 7.0f);
    a.max_logprobs = max_logprobs;
    a.tokens = result.tokens.data();
    a.token_ranks = result.ranks.data();
    a.token_logprobs = result.logprobs.data();
    a.top_ids = result.top_ids.data();
    a.top_logprobs = result.top_logprobs.data();
    a.workspace = workspace.data();
    cpu::sample(a, context);
    for (size_t i = bytes; i < workspace.size(); ++i) EXPECT_EQ(workspace[i], kGuardByte);
    EXPECT_EQ(result.tokens.back(), -7);
    EXPECT_EQ(result.ranks.back(), -7);
    EXPECT_EQ(result.logprobs.back(), 7.0f);
    EXPECT_EQ(result.top_ids.back(), -7);
    EXPECT_EQ(result.top_logprobs.back(), 7.0f);
    return result;
  }

  int32_t vocab;
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  std::vector<uint32_t> counts, masks;
  std::vector<uint32_t> counted;  // the counts after the last run
};

}  // namespace zipage
