// The sampler on the CPU against its definition: distributions by chi-square, every draw against
// the oracle's inverse distribution function, penalties, masks, log-probabilities.
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "backend/sample_case.h"
#include "oracle/sampling_oracle.h"
#include "sampling/philox.h"

namespace zipage {
namespace {

// `draws` rows of the same logits and choices, at steps 0, 1, 2, ...
SampleCase repeated(int32_t vocab,
                    int32_t draws,
                    uint32_t seed,
                    const std::function<void(SampleRow&)>& choose) {
  SampleCase one(1, vocab, seed);
  SampleCase many(0, vocab);
  for (int32_t i = 0; i < draws; ++i) {
    many.logits.insert(many.logits.end(), one.logits.begin(), one.logits.end());
    SampleRow row;
    row.temperature = 1;
    row.seed = 1234 + seed;
    row.step = static_cast<uint64_t>(i);
    choose(row);
    many.rows.push_back(row);
  }
  return many;
}

// The draw's place in the cumulative distribution, in the order of ids. Borders are as wide as f32
// weights.
bool is_inverse_of(const std::vector<double>& p, const SampleRow& row, int32_t token) {
  const double u = philox_uniform(row.seed, row.step);
  double below = 0;
  for (int32_t id = 0; id < token; ++id) below += p[id];
  return p[token] > 0 && below - 2e-6 <= u && u <= below + p[token] + 2e-6;
}

// Upper 10^-5 quantile of chi-square with k degrees of freedom (Wilson and Hilferty).
double chi_square_limit(double k) {
  const double z = 4.265;
  return k * std::pow(1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k)), 3);
}

void expect_distribution(SampleCase& c, int32_t min_kinds) {
  const SampleArgs args = c.args();
  const std::vector<double> p = oracle::token_distribution(args, 0);
  const auto draws = static_cast<double>(c.rows.size());
  for (const cpu::Isa isa : available_isas()) {
    const SampleCase::Result result = c.run(isa, 2);
    std::vector<double> seen(p.size());
    for (size_t i = 0; i < c.rows.size(); ++i) {
      const int32_t token = result.tokens[i];
      ASSERT_TRUE(token >= 0 && token < c.vocab);
      ASSERT_GT(p[token], 0) << "token " << token << " is filtered out";
      ASSERT_TRUE(is_inverse_of(p, c.rows[i], token)) << "draw " << i;
      seen[token] += 1;
    }
    double chi = 0, rare = 0, rare_seen = 0;
    int32_t kinds = 0;
    const auto add = [&](double expected, double count) {
      if (expected == 0) return;
      chi += (count - expected) * (count - expected) / expected;
      ++kinds;
    };
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] * draws >= 5) {
        add(p[id] * draws, seen[id]);
      } else {
        rare += p[id] * draws;
        rare_seen += seen[id];
      }
    }
    if (rare >= 1) add(rare, rare_seen);
    ASSERT_GE(kinds, min_kinds) << "the case tests nothing";
    EXPECT_LT(chi, chi_square_limit(kinds - 1)) << cpu::isa_name(isa) << " " << kinds << " kinds";
  }
}

constexpr int32_t kDraws = 20000;

TEST(Sample, PhiloxMatchesKnownAnswers) {  // Random123 kat_vectors
  const auto expect = [](PhiloxCounter counter, uint32_t k0, uint32_t k1, PhiloxCounter want) {
    const PhiloxCounter got = philox4x32_10(counter, k0, k1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want.word[i]);
  };
  expect({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
  for (uint64_t step = 0; step < 1000; ++step) {
    ASSERT_GE(philox_uniform(9, step), 0.0);
    ASSERT_LT(philox_uniform(9, step), 1.0);
  }
}

TEST(Sample, GreedyTakesTheLowestOfEquals) {
  for (const cpu::Isa isa : available_isas()) {
    SampleCase c(6, 37);
    const auto row = [&](int32_t r) { return c.logits.data() + r * 37; };
    row(0)[31] = row(0)[17] = row(0)[36] = 50;
    row(1)[36] = 50;
    row(1)[3] = NAN;
    std::fill(row(2), row(2) + 37, -kInf);
    std::fill(row(3), row(3) + 37, NAN);
    std::fill(row(4), row(4) + 37, NAN);
    row(4)[20] = -1e30f;
    row(5)[9] = kInf;
    EXPECT_THAT(c.run(isa, 1).tokens, testing::ElementsAre(17, 36, -1, -1, 20, 9, -7))
        << cpu::isa_name(isa);
    for (SampleRow& r : c.rows) r.temperature = 1;  // certain or hopeless rows draw the same
    const std::vector<int32_t> drawn = c.run(isa, 1).tokens;
    EXPECT_EQ(drawn[1], 36);
    EXPECT_EQ(drawn[2], -1);
    EXPECT_EQ(drawn[3], -1);
    EXPECT_EQ(drawn[4], 20);
    EXPECT_EQ(drawn[5], 9);
  }
}

TEST(Sample, Temperature) {
  SampleCase c = repeated(50, kDraws, 1, [](SampleRow& row) { row.temperature = 0.7f; });
  expect_distribution(c, 20);
}

TEST(Sample, HotAndWide) {
  SampleCase c = repeated(1000, kDraws, 2, [](SampleRow& row) { row.temperature = 1.5f; });
  expect_distribution(c, 300);
}

TEST(Sample, TopK) {
  SampleCase c = repeated(300, kDraws, 3, [](SampleRow& row) { row.top_k = 12; });
  expect_distribution(c, 12);
}

TEST(Sample, TopKKeepsEqualsOfTheLast) {
  SampleCase c = repeated(64, kDraws, 4, [](SampleRow& row) { row.top_k = 3; });
  for (int32_t r = 0; r < kDraws; ++r) {
    float* z = &c.logits[static_cast<size_t>(r) * 64];
    for (int32_t id = 0; id < 64; ++id) z[id] = id % 8 == 0 ? 2.0f : id == 5 ? 3.0f : -1.0f;
  }
  expect_distribution(c, 9);
}

TEST(Sample, TopP) {
  SampleCase c = repeated(200, kDraws, 5, [](SampleRow& row) { row.top_p = 0.85f; });
  expect_distribution(c, 8);
}

TEST(Sample, TinyTopPIsGreedy) {
  SampleCase c = repeated(200, 50, 6, [](SampleRow& row) { row.top_p = 1e-6f; });
  const auto top = std::max_element(c.logits.begin(), c.logits.begin() + 200) - c.logits.begin();
  const SampleCase::Result result = c.run(cpu::Isa::kScalar, 1);
  for (int32_t i = 0; i < 50; ++i) EXPECT_EQ(result.tokens[i], top);
}

TEST(Sample, MinP) {
  SampleCase c = repeated(200, kDraws, 7, [](SampleRow& row) { row.min_p = 0.02f; });
  expect_distribution(c, 5);
}

TEST(Sample, TypicalP) {
  SampleCase c = repeated(200, kDraws, 8, [](SampleRow& row) { row.typical_p = 0.5f; });
  expect_distribution(c, 5);
}

TEST(Sample, AllFiltersTogether) {
  SampleCase c = repeated(400, kDraws, 9, [](SampleRow& row) {
    row.temperature = 2.5f;
    row.min_p = 0.01f;
    row.top_k = 60;
    row.top_p = 0.9f;
    row.typical_p = 0.8f;
  });
  expect_distribution(c, 10);
}

TEST(Sample, PenaltiesBiasAndMask) {
  const int32_t vocab = 90;
  SampleCase c = repeated(vocab, kDraws, 10, [](SampleRow& row) {
    row.repetition_penalty = 1.4f;
    row.presence_penalty = 0.5f;
    row.frequency_penalty = 0.25f;
    row.count_slot = 1 + static_cast<int32_t>(row.step);
    row.mask_slot = 1;
    row.bias_begin = 1;
    row.bias_count = 3;
  });
  c.counts.assign((1 + kDraws) * vocab, 5);  // slot 0 is another request's
  for (int32_t i = 0; i < kDraws * vocab; ++i) {
    const int32_t id = i % vocab;
    c.counts[vocab + i] = id % 4 == 0   ? 1u << 31
                          : id % 4 == 1 ? 3u
                          : id % 4 == 2 ? (1u << 31 | 1u)
                                        : 0u;
  }
  c.masks.assign(2 * 3, 0u);
  for (int32_t id = 0; id < vocab; ++id) {
    if (id % 5 != 0) c.masks[3 + id / 32] |= 1u << (id % 32);
  }
  c.bias_ids = {3, 7, 11, 4};
  c.bias_values = {100.0f, -kInf, 2.5f, -1.0f};
  expect_distribution(c, 20);
  // Greedy under the same changes.
  for (SampleRow& row : c.rows) row.temperature = 0;
  c.rows.resize(1);
  const std::vector<double> p = oracle::token_distribution(c.args(), 0);
  for (const cpu::Isa isa : available_isas()) EXPECT_EQ(p[c.run(isa, 1).tokens[0]], 1);
}

TEST(Sample, PenaltiesOnlyKnowTheirTokens) {
  // Three tokens, greedy: what one penalty changes.
  const auto pick = [](const std::function<void(SampleRow&)>& choose) {
    SampleCase c(1, 3);
    c.logits = {2.0f, 1.9f, -1.0f};
    c.counts = {1u << 31 | 2u, 1u << 31, 0u};
    c.rows[0].count_slot = 0;
    choose(c.rows[0]);
    return c.run(cpu::Isa::kScalar, 1).tokens[0];
  };
  EXPECT_EQ(pick([](SampleRow&) {}), 0);
  EXPECT_EQ(pick([](SampleRow& r) { r.repetition_penalty = 1.5f; }), 0);  // both are divided
  EXPECT_EQ(pick([](SampleRow& r) { r.presence_penalty = 0.05f; }), 0);
  // The prompt does not count.
  EXPECT_EQ(pick([](SampleRow& r) { r.presence_penalty = 0.15f; }), 1);
  EXPECT_EQ(pick([](SampleRow& r) { r.frequency_penalty = 0.06f; }), 1);  // twice 0.06
  EXPECT_EQ(pick([](SampleRow& r) {
              r.repetition_penalty = 0.5f;
              r.presence_penalty = 0.3f;
            }),
            1);
}

TEST(Sample, CountsWhatItSampled) {
  SampleCase c(3, 40);
  c.counts.assign(4 * 40, 0u);
  c.rows[0].count_slot = 2;
  c.rows[2].count_slot = 0;
  c.rows[2].temperature = 1;
  const SampleCase::Result first = c.run(cpu::Isa::kScalar, 2);
  std::vector<uint32_t> want = c.counts;
  ++want[2 * 40 + first.tokens[0]];
  ++want[first.tokens[2]];
  EXPECT_EQ(c.counted, want);
  c.counts[2 * 40 + first.tokens[0]] = 1u << 31 | 6u;
  c.run(cpu::Isa::kScalar, 1);
  EXPECT_EQ(c.counted[2 * 40 + first.tokens[0]], 1u << 31 | 7u);
}

// One batch of every kind of row; each row alone, and with other threads, gives the same.
TEST(Sample, RowsDoNotMatterToEachOther) {
  const int32_t vocab = 5000;
  SampleCase c(24, vocab, 11);
  for (int32_t r = 0; r < 24; ++r) {
    SampleRow& row = c.rows[r];
    row.temperature = r % 3 == 0 ? 0.0f : 0.8f;
    row.top_k = r % 4 == 1 ? 40 : 0;
    row.top_p = r % 5 == 2 ? 0.9f : 1.0f;
    row.typical_p = r % 7 == 3 ? 0.7f : 1.0f;
    row.seed = 77;
    row.step = static_cast<uint64_t>(r);
    row.num_logprobs = r % 4 - 1;
  }
  for (const cpu::Isa isa : available_isas()) {
    const SampleCase::Result together = c.run(isa, 1, 3);
    EXPECT_EQ(c.run(isa, 2, 3), together);
    EXPECT_EQ(c.run(isa, 5, 3), together);
    for (int32_t r = 0; r < 24; ++r) {
      SampleCase alone(1, vocab);
      alone.logits.assign(c.logits.begin() + r * vocab, c.logits.begin() + (r + 1) * vocab);
      alone.rows[0] = c.rows[r];
      const SampleCase::Result result = alone.run(isa, 1, 3);
      ASSERT_EQ(result.tokens[0], together.tokens[r]);
      ASSERT_EQ(result.logprobs[0], together.logprobs[r]);
      ASSERT_EQ(result.ranks[0], together.ranks[r]);
      for (int32_t i = 0; i < 3; ++i) ASSERT_EQ(result.top_ids[i], together.top_ids[r * 3 + i]);
    }
  }
}

// Filters over a real vocabulary's width against the oracle's sets, with logits from peaked to
// flat.
TEST(Sample, WideVocabulary) {
  const int32_t vocab = 32003;
  for (const float deviation : {0.1f, 3.0f, 30.0f}) {
    SampleCase c(8, vocab, 13, deviation);
    for (int32_t r = 0; r < 8; ++r) {
      SampleRow& row = c.rows[r];
      row.temperature = 1.0f;
      row.seed = 5;
      row.step = static_cast<uint64_t>(r);
      if (r % 4 == 0) row.top_k = 1000;
      if (r % 4 == 1) row.top_p = 0.95f;
      if (r % 4 == 2) row.typical_p = 0.9f;
      if (r % 4 == 3) row.min_p = 0.05f;
    }
    for (const cpu::Isa isa : available_isas()) {
      const SampleCase::Result result = c.run(isa, 2);
      for (int32_t r = 0; r < 8; ++r) {
        const std::vector<double> p = oracle::token_distribution(c.args(), r);
        EXPECT_TRUE(is_inverse_of(p, c.rows[r], result.tokens[r]))
            << cpu::isa_name(isa) << " row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace zipage
