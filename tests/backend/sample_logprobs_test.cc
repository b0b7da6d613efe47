// What the sampler says beside the token: log-probabilities, ranks and alternatives of the raw
// logits; and that there is no token where none is left.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "backend/sample_case.h"
#include "oracle/sampling_oracle.h"

namespace zipage {
namespace {

// How many tokens are at least as likely; 0 where there is no token.
int32_t rank_of(const std::vector<double>& logits, int32_t token) {
  if (token < 0) return 0;
  return static_cast<int32_t>(
      std::count_if(logits.begin(), logits.end(), [&](double x) { return x >= logits[token]; }));
}

// As vLLM counts them: of three equals each has the rank of the last.
TEST(Sample, EqualsShareTheRankOfTheLast) {
  for (const cpu::Isa isa : available_isas()) {
    SampleCase c(4, 6);
    for (int32_t r = 0; r < 4; ++r) {
      const float logits[] = {1, 3, 2, 3, 3, -kInf};
      std::copy(std::begin(logits), std::end(logits), c.logits.begin() + r * 6);
      c.rows[r].num_logprobs = 0;
    }
    c.rows[1].given_token = 4;
    c.rows[2].given_token = 2;
    c.rows[3].given_token = 5;
    EXPECT_THAT(c.run(isa, 1).ranks, testing::ElementsAre(3, 3, 4, 6, -7));
  }
}

// Whether the mask, the biases or the logits forbid them all, greedy or drawn: no token, and nothing
// is counted.
TEST(Sample, WhereEveryTokenIsForbiddenThereIsNone) {
  for (const cpu::Isa isa : available_isas()) {
    for (const float temperature : {0.0f, 1.0f}) {
      SampleCase c(4, 40, 3);
      c.masks = {1u << 3 | 1u << 4, 0u};
      c.counts.assign(40, 0u);
      c.bias_ids = {3, 4, 4};
      c.bias_values = {-kInf, -kInf, 50.0f};
      for (SampleRow& row : c.rows) {
        row.temperature = temperature;
        row.mask_slot = 0;
        row.num_logprobs = 2;
        row.top_p = 0.9f;
      }
      c.rows[0].bias_count = 2;
      c.rows[0].count_slot = 0;
      c.rows[1].bias_begin = 1;
      c.rows[1].bias_count = 2;  // 3 is left
      c.rows[2].mask_slot = -1;
      std::fill_n(c.logits.begin() + 2 * 40, 40, NAN);
      c.logits[3 * 40 + 3] = NAN;  // 4 is left
      const SampleCase::Result result = c.run(isa, 1, 2);
      EXPECT_THAT(result.tokens, testing::ElementsAre(-1, 3, -1, 4, -7)) << cpu::isa_name(isa);
      EXPECT_EQ(c.counted, c.counts);
      EXPECT_EQ(result.ranks[0], 0);
      EXPECT_EQ(result.logprobs[0], -kInf);
      EXPECT_GT(result.top_logprobs[0], -kInf) << "alternatives are of the raw logits";
    }
  }
}

TEST(Sample, Logprobs) {
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t vocab : {5, 320, 3001}) {
      const int32_t max_logprobs = std::min(vocab, 20);
      SampleCase c(7, vocab, 12, 4);
      c.logits[1] = c.logits[3] = c.logits[4] = 9.0f;  // equals at the top of row 0
      c.logits[vocab + 2] = NAN;
      c.logits[2 * vocab + 1] = -kInf;
      std::fill_n(c.logits.begin() + 5 * vocab, vocab, -kInf);
      c.logits[6 * vocab] = c.logits[6 * vocab + 4] = kInf;
      for (int32_t r = 0; r < 7; ++r) {
        c.rows[r].temperature = r % 2 == 0 ? 0.0f : 5.0f;
        c.rows[r].step = static_cast<uint64_t>(r);
        c.rows[r].num_logprobs = r == 3 ? -1 : r == 4 ? 0 : std::min(max_logprobs, 3 * r + 1);
      }
      const SampleCase::Result result = c.run(isa, 2, max_logprobs);
      for (int32_t r = 0; r < 7; ++r) {
        if (r == 3) {
          EXPECT_EQ(result.logprobs[r], 7.0f) << "no log-probabilities were asked for";
          continue;
        }
        const std::vector<double> want = oracle::raw_logprobs(c.args(), r);
        const std::vector<int> order = oracle::order_of(oracle::raw_logits(c.args(), r));
        const auto expect_logprob = [&](float got, int id) {
          if (std::isinf(want[id])) {
            EXPECT_EQ(got, -kInf);
          } else {
            EXPECT_NEAR(got, want[id], 2e-6 * (1 + std::abs(want[id])))
                << "row " << r << " id " << id;
          }
        };
        const int32_t token = result.tokens[r];
        if (r == 5) {  // nothing could be sampled
          EXPECT_EQ(token, -1);
          EXPECT_EQ(result.logprobs[r], -kInf);
        } else {
          expect_logprob(result.logprobs[r], token);
        }
        EXPECT_EQ(result.ranks[r], rank_of(oracle::raw_logits(c.args(), r), token)) << "row " << r;
        for (int32_t i = 0; i < max_logprobs; ++i) {
          if (i < c.rows[r].num_logprobs) {
            ASSERT_EQ(result.top_ids[r * max_logprobs + i], order[i])
                << "row " << r << " place " << i;
            expect_logprob(result.top_logprobs[r * max_logprobs + i], order[i]);
          } else {
            ASSERT_EQ(result.top_ids[r * max_logprobs + i], -1);
            ASSERT_EQ(result.top_logprobs[r * max_logprobs + i], -kInf);
          }
        }
      }
    }
  }
}

TEST(Sample, AGivenTokenIsScoredAndNothingIsDrawnOrCounted) {
  const int32_t vocab = 320, most = 4;
  SampleCase c(6, vocab, 21, 3);
  c.counts.assign(static_cast<size_t>(vocab), 0);
  c.logits[2 * vocab + 9] = NAN;
  for (int32_t r = 0; r < 6; ++r) {
    SampleRow& row = c.rows[r];
    row.temperature = r % 2 == 0 ? 0.0f : 1.0f;
    row.given_token = r < 4 ? 53 * r : -1;  // the last two sample as ever
    row.num_logprobs = r;
    if (r == 1) row.count_slot = 0;
  }
  c.rows[2].given_token = 9;  // a token that cannot be
  SampleCase plain = c;
  for (SampleRow& row : plain.rows) row.given_token = -1;
  for (const cpu::Isa isa : available_isas()) {
    const SampleCase::Result result = c.run(isa, 2, most), free = plain.run(isa, 2, most);
    EXPECT_EQ(c.counted, c.counts);
    EXPECT_NE(plain.counted, c.counts);
    for (int32_t r = 0; r < 6; ++r) {
      const int32_t token = c.rows[r].given_token >= 0 ? c.rows[r].given_token : free.tokens[r];
      ASSERT_EQ(result.tokens[r], token) << "row " << r;
      const std::vector<double> want = oracle::raw_logprobs(c.args(), r);
      const std::vector<int> order = oracle::order_of(oracle::raw_logits(c.args(), r));
      EXPECT_EQ(result.ranks[r], rank_of(oracle::raw_logits(c.args(), r), token)) << "row " << r;
      if (r == 2) {
        EXPECT_EQ(result.logprobs[r], -kInf);
      } else {
        EXPECT_NEAR(result.logprobs[r], want[token], 2e-6 * (1 + std::abs(want[token])));
      }
      for (int32_t i = 0; i < most; ++i)
        ASSERT_EQ(result.top_ids[r * most + i], i < r ? order[i] : -1) << "row " << r;
    }
  }
}

}  // namespace
}  // namespace zipage
