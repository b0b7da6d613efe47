// Scores of compression, method.md 3.1.1 to 3.1.6 and 3.2.
#include <algorithm>
#include <cmath>

#include "backend/compression_op_fixture.h"

namespace zipage::testing {
namespace {

TEST_P(CompressionOpTest, AttentionScore) {
  for_each_key_case("attention_score", [](Backend& backend, CompressionCase& c) {
    float* score = c.new_rows();
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.shape().head_dim));
    backend.attention_score({c.args(), scale, score, c.workspace()}, c.stream());
    for_each_head(c, [&](int j, int l, int h) {
      const auto want = oracle::attention_score(c.window(j, l, h), c.keys(j, l, h), scale);
      expect_close(c.row(score, j, l, h), want, 1e-7, 1e-5);
    });
  });
}

TEST_P(CompressionOpTest, GlobalScore) {
  for (const ScoreReduce reduce : {ScoreReduce::kMax, ScoreReduce::kSum}) {
    for_each_case([&](Backend& backend, CompressionCase& c) {
      float* score = c.new_rows();
      fill_random(c, score, 5);
      float* before = c.new_rows();
      fill_random(c, before, 5);
      backend.global_score({c.args(), 0.8f, reduce, score}, c.stream());
      for_each_head(c, [&](int j, int l, int h) {
        auto f = c.history(j, l, h);
        f.resize(static_cast<size_t>(c.jobs()[static_cast<size_t>(j)].history));
        const auto want = oracle::global_score(as_double(c.row(before, j, l, h)), f, 0.8, reduce);
        expect_close(c.row(score, j, l, h), want, 1e-7, 1e-6);
      });
    });
  }
}

TEST_P(CompressionOpTest, MaxPool) {
  for (const int width : {1, 5, 7}) {
    for (const bool only_first : {false, true}) {
      for_each_case([&](Backend& backend, CompressionCase& c) {
        float* score = c.new_rows();
        fill_random(c, score, 9);
        float* out = c.new_rows();
        backend.max_pool({c.args(), width, only_first, score, out}, c.stream());
        for_each_head(c, [&](int j, int l, int h) {
          const auto in = as_double(c.row(score, j, l, h));
          const bool pooled = !only_first || c.jobs()[static_cast<size_t>(j)].history == 0;
          expect_close(c.row(out, j, l, h), pooled ? oracle::max_pool(in, width) : in, 0, 0);
        });
      });
    }
  }
}

TEST_P(CompressionOpTest, RedundancyOfPairs) {
  for (const Redundancy mode : {Redundancy::kLightning, Redundancy::kFlash, Redundancy::kRaw}) {
    for (const bool derotate : {false, true}) {
      for_each_key_case("redundancy", [&](Backend& backend, CompressionCase& c) {
        float* out = c.new_rows();
        backend.redundancy({c.args(), mode, 0.5f, 0.4f, derotate, c.rope(), c.shape().rotary_dim,
                            out, c.workspace()},
                           c.stream());
        const auto rope = c.rope_rows();
        for_each_head(c, [&](int j, int l, int h) {
          auto keys = c.keys(j, l, h);
          if (derotate) {
            keys = oracle::derotate(keys, c.positions(j, l, h), rope, c.shape().rotary_dim);
          }
          const int n = static_cast<int>(keys.size());
          const int span = mode == Redundancy::kLightning ? c.shape().block_size : n;
          const auto want = oracle::redundancy(keys, span, 0.5, 0.4);
          // A similarity this close to the threshold may fall on either side in f32; the seeds have
          // none.
          ASSERT_GT(want.margin, 1e-6);
          expect_close(c.row(out, j, l, h), want.score, 1e-8, 1e-5);
        });
      });
    }
  }
}

TEST_P(CompressionOpTest, CenterRedundancy) {
  for_each_key_case("center_redundancy", [](Backend& backend, CompressionCase& c) {
    float* out = c.new_rows();
    backend.center_redundancy({c.args(), 0.4f, c.rope(), c.shape().rotary_dim, out, c.workspace()},
                              c.stream());
    const auto rope = c.rope_rows();
    for_each_head(c, [&](int j, int l, int h) {
      const auto keys =
          oracle::derotate(c.keys(j, l, h), c.positions(j, l, h), rope, c.shape().rotary_dim);
      expect_close(c.row(out, j, l, h), oracle::center_redundancy(keys, 0.4), 1e-8, 2e-5);
      // method.md 3.2: the centre form equals the all-pairs mean.
      expect_close(c.row(out, j, l, h), oracle::center_redundancy_by_pairs(keys, 0.4), 1e-8, 2e-5);
    });
  });
}

// method.md 3.2: adding a constant to all positions leaves R unchanged.
TEST_P(CompressionOpTest, CenterRedundancyKnowsNoAbsolutePosition) {
  const auto backend = make_backend(GetParam(), 1);
  const CaseShape shape{.group = 1, .block_size = 16, .window_size = 4};
  std::vector<CaseJob> jobs = {
      {.slot = 0, .length = 64, .keep = 48, .source = {0, 1, 2, 3}},
      {.slot = 0, .length = 64, .keep = 48, .extra_offset = 777, .source = {0, 1, 2, 3}}};
  CompressionCase c(*backend, shape, jobs, 3);
  float* out = c.new_rows();
  backend->center_redundancy({c.args(), 0.4f, c.rope(), 64, out, c.workspace()}, c.stream());
  for (int l = 0; l < 2; ++l) {
    for (int h = 0; h < 2; ++h) {
      expect_close(c.row(out, 1, l, h), as_double(c.row(out, 0, l, h)), 1e-8, 5e-5);
    }
  }
}

TEST_P(CompressionOpTest, NormalizedHistory) {
  for_each_case([](Backend& backend, CompressionCase& c) {
    float* given = c.new_rows();
    fill_random(c, given, 21);
    float* out = c.new_rows();
    backend.normalized_history({c.args(), given, out}, c.stream());
    for_each_head(c, [&](int j, int l, int h) {
      const auto want = oracle::normalized_history(as_double(c.row(given, j, l, h)));
      expect_close(c.row(out, j, l, h), want, 0, 1e-5);
    });
  });
  // kv's own F, and a sum of 0.
  const auto backend = make_backend(GetParam(), 1);
  const CaseShape shape{.block_size = 16, .window_size = 4};
  CompressionCase c(*backend, shape,
                    {{.slot = 1, .length = 64, .keep = 48, .source = {0, 1, 2, 3}}}, 3);
  float* out = c.new_rows();
  backend->normalized_history({c.args(), nullptr, out}, c.stream());
  for_each_head(c, [&](int j, int l, int h) {
    expect_close(c.row(out, j, l, h), oracle::normalized_history(c.history(j, l, h)), 0, 1e-5);
  });
  float* zero = c.new_rows();
  for_each_head(
      c, [&](int j, int l, int h) { c.set_row(zero, j, l, h, std::vector<float>(64, 0.0f)); });
  backend->normalized_history({c.args(), zero, out}, c.stream());
  expect_close(c.row(out, 0, 1, 1), oracle::Row(64, 0.0), 0, 0);
}

TEST_P(CompressionOpTest, CombineScores) {
  for (const Combine mode : {Combine::kConvex, Combine::kSubtract}) {
    for (int given = 1; given <= 3; ++given) {
      for_each_case([&](Backend& backend, CompressionCase& c) {
        float* s = c.new_rows();
        float* r = c.new_rows();
        fill_random(c, s, 31);
        fill_random(c, r, 32);
        float* out = c.new_rows();
        const float* attention = (given & 1) != 0 ? s : nullptr;
        const float* redundancy = (given & 2) != 0 ? r : nullptr;
        backend.combine({c.args(), mode, 0.3f, attention, redundancy, out}, c.stream());
        std::vector<oracle::Row> wants;
        for_each_head(c, [&](int j, int l, int h) {
          const auto a = as_double(c.row(s, j, l, h));
          const auto b = as_double(c.row(r, j, l, h));
          wants.push_back(oracle::combine(attention != nullptr ? &a : nullptr,
                                          redundancy != nullptr ? &b : nullptr, 0.3, mode));
          expect_close(c.row(out, j, l, h), wants.back(), 2e-7, 0);
        });
        backend.combine({c.args(), mode, 0.3f, attention, redundancy, r}, c.stream());  // aliased
        size_t at = 0;
        for_each_head(
            c, [&](int j, int l, int h) { expect_close(c.row(r, j, l, h), wants[at++], 2e-7, 0); });
      });
    }
  }
}

TEST_P(CompressionOpTest, PlainScores) {
  for_each_case([](Backend& backend, CompressionCase& c) {
    float* recency = c.new_rows();
    float* random = c.new_rows();
    backend.plain_score({c.args(), KvPolicy::kRecency, recency}, c.stream());
    backend.plain_score({c.args(), KvPolicy::kRandom, random}, c.stream());
    for_each_head(c, [&](int j, int l, int h) {
      const auto got = c.row(recency, j, l, h);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(i));
      const auto positions = c.positions(j, l, h);
      const auto hashed = c.row(random, j, l, h);
      const uint64_t seed = c.jobs()[static_cast<size_t>(j)].seed;
      for (size_t i = 0; i < hashed.size(); ++i) {
        ASSERT_EQ(hashed[i], oracle::random_score(seed, l, h, positions[i])) << i;
      }
    });
  });
}

TEST_P(CompressionOpTest, Protection) {
  struct Setting {
    int newest, sinks;
    bool prompt;
  };
  for (const Setting s : {Setting{4, 0, false}, Setting{9, 3, false}, Setting{1, 2, true},
                          Setting{0, 4, true}, Setting{1000, 0, false}}) {
    for_each_case([&](Backend& backend, CompressionCase& c) {
      float* score = c.new_rows();
      fill_random(c, score, 41);
      float* before = c.new_rows();
      fill_random(c, before, 41);
      backend.protect({c.args(), s.newest, s.sinks, s.prompt, score}, c.stream());
      for_each_head(c, [&](int j, int l, int h) {
        const auto want =
            oracle::protect(as_double(c.row(before, j, l, h)), c.positions(j, l, h), s.newest,
                            s.sinks, s.prompt, c.jobs()[static_cast<size_t>(j)].prompt_length);
        ASSERT_EQ(as_double(c.row(score, j, l, h)), want);
      });
    });
  }
}

TEST_P(CompressionOpTest, PeakUpdate) {
  for (const bool to_scratch : {false, true}) {
    for_each_key_case("peak_update", [&](Backend& backend, CompressionCase& c) {
      // Job 3 is longer than the score cache: scratch only.
      PeakUpdateBatch batch;
      batch.num_updates = to_scratch ? 4 : 3;
      batch.max_length = c.batch().max_length;
      batch.slots = c.batch().slots;
      batch.lengths = c.batch().lengths;
      batch.previous_lengths = c.batch().histories;
      batch.block_tables = c.batch().block_tables;
      batch.block_table_stride = c.batch().block_table_stride;
      const float scale = 1.0f / std::sqrt(static_cast<float>(c.shape().head_dim));
      float* scratch = to_scratch ? c.new_rows() : nullptr;
      backend.peak_update({&batch, &c.view(), 0, c.shape().num_layers, scale, 24.0f, scratch,
                           c.capacity(), c.workspace()},
                          c.stream());
      const auto after = c.download();
      for_each_head(c, [&](int j, int l, int h) {
        if (j >= batch.num_updates) return;
        const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
        const int previous = to_scratch ? 0 : job.history;
        const auto want = oracle::peak_update(c.window(j, l, h), c.keys(j, l, h), scale, 24,
                                              c.history(j, l, h), previous);
        std::vector<float> got;
        if (to_scratch) {
          got = c.row(scratch, j, l, h);
        } else {
          const float* f = &after.scores[static_cast<size_t>(l)][c.slot_offset(job.slot, h)];
          got.assign(f, f + job.length);
        }
        expect_close(got, want, 1e-8, 2e-5);
      });
      EXPECT_TRUE(!to_scratch || after.scores == c.before().scores);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         CompressionOpTest,
                         ::testing::ValuesIn(backends_here()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace zipage::testing
