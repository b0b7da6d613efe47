// Every op of compression against the oracle, on every backend of this machine.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "backend/compression_case.h"
#include "oracle/compression_oracle.h"

namespace zipage::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A few shapes that differ in everything: GQA 1 2 3 4 8, head_dim 64 80 96 128 256, KV types,
// partial rotation.
std::vector<CaseShape> shapes() {
  std::vector<CaseShape> all;
  all.push_back(
      {.group = 3, .head_dim = 64, .rotary_dim = 64, .block_size = 16, .window_size = 16});
  all.push_back({.group = 1,
                 .head_dim = 80,
                 .rotary_dim = 32,
                 .block_size = 8,
                 .window_size = 4,
                 .dtype = DType::kBF16,
                 .query_dtype = DType::kBF16});
  all.push_back({.num_layers = 1,
                 .num_kv_heads = 1,
                 .group = 8,
                 .head_dim = 96,
                 .rotary_dim = 96,
                 .block_size = 24,
                 .window_size = 8,
                 .dtype = DType::kF16});
  all.push_back({.num_layers = 3,
                 .num_kv_heads = 3,
                 .group = 2,
                 .head_dim = 128,
                 .rotary_dim = 128,
                 .block_size = 32,
                 .window_size = 16,
                 .dtype = DType::kBF16});
  all.push_back({.num_layers = 1,
                 .group = 4,
                 .head_dim = 256,
                 .rotary_dim = 256,
                 .block_size = 4,
                 .window_size = 2,
                 .query_dtype = DType::kF16});
  all.push_back({.num_layers = 1,
                 .num_kv_heads = 1,
                 .group = 2,
                 .head_dim = 20,
                 .rotary_dim = 12,
                 .block_size = 48,
                 .window_size = 16});
  return all;
}

// Jobs of one block, of a first and of a later compression, and one whose last block is not full.
std::vector<CaseJob> jobs_for(const CaseShape& s) {
  const int b = s.block_size;
  std::vector<CaseJob> jobs;
  jobs.push_back({.slot = 2, .length = b, .keep = b / 2, .source = {9}, .target = {9}});
  jobs.push_back({.slot = 0,
                  .length = 4 * b,
                  .keep = 3 * b,
                  .prompt_length = b + 3,
                  .source = {4, 1, 7, 2},
                  .target = {4, 1, 7}});
  jobs.push_back({.slot = 1,
                  .length = 4 * b,
                  .keep = 3 * b,
                  .history = 3 * b,
                  .prompt_length = 5,
                  .seed = 77,
                  .source = {8, 3, 0, 5},
                  .target = {10, 11, 0}});
  jobs.push_back({.slot = 3,
                  .length = 5 * b - 1,
                  .keep = 2 * b,
                  .source = {12, 13, 14, 15, 16},
                  .target = {17, 18}});
  return jobs;
}

class CompressionOpTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls body(case) for every shape.
  template <typename Body>
  void for_each_case(Body&& body) {
    const auto backend = make_backend(GetParam(), 2);
    uint32_t seed = 1;
    for (const CaseShape& shape : shapes()) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << shape.head_dim << " group " << shape.group);
      CompressionCase c(*backend, shape, jobs_for(shape), seed++);
      body(*backend, c);
      EXPECT_TRUE(c.guards_intact());
    }
  }

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

  static void expect_close(const std::vector<float>& got,
                           const oracle::Row& want,
                           double absolute,
                           double relative) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - want[i]), absolute + relative * std::fabs(want[i]))
          << "entry " << i << ": " << got[i] << " for " << want[i];
    }
  }

  static std::vector<float> random_row(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> row(n);
    for (float& x : row) x = static_cast<float>(random() % 4096) / 4096;
    return row;
  }
  static oracle::Row as_double(const std::vector<float>& row) { return {row.begin(), row.end()}; }

  static void fill_random(CompressionCase& c, float* rows, uint32_t salt) {
    for_each_head(c, [&](int j, int l, int h) {
      const auto n = static_cast<size_t>(c.jobs()[static_cast<size_t>(j)].length);
      c.set_row(rows, j, l, h, random_row(n, salt + static_cast<uint32_t>(100 * j + 10 * l + h)));
    });
  }
};

TEST_P(CompressionOpTest, AttentionScore) {
  for_each_case([](Backend& backend, CompressionCase& c) {
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
      for_each_case([&](Backend& backend, CompressionCase& c) {
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
  for_each_case([](Backend& backend, CompressionCase& c) {
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

// Discrete: the same scores give the same set, with ties, infinities and NaN among them.
TEST_P(CompressionOpTest, TopK) {
  for_each_case([](Backend& backend, CompressionCase& c) {
    for (int kind = 0; kind < 5; ++kind) {
      float* score = c.new_rows();
      int32_t* kept = c.new_kept();
      uint32_t seed = static_cast<uint32_t>(kind) * 1000;
      for_each_head(c, [&](int j, int l, int h) {
        std::mt19937 random(seed++);
        std::vector<float> row(static_cast<size_t>(c.jobs()[static_cast<size_t>(j)].length));
        for (float& x : row) {
          const auto r = static_cast<float>(random() % 100000);
          switch (kind) {
            case 0:
              x = (r - 50000) * 1e-4f;
              break;
            case 1:
              x = static_cast<float>(random() % 3) - 1;
              break;  // ties
            case 2:
              x = random() % 2 == 0 ? 0.0f : -0.0f;
              break;  // equal zeros
            case 3:
              x = random() % 4 == 0 ? std::nanf("") : random() % 4 == 0 ? -kInf : -r;
              break;
            default:
              x = random() % 5 == 0 ? kInf : std::ldexp(1.0f, -140) * r;
              break;  // subnormal
          }
        }
        c.set_row(score, j, l, h, row);
      });
      backend.top_k({c.args(), score, kept, c.kept_stride()}, c.stream());
      for_each_head(c, [&](int j, int l, int h) {
        const int k = c.jobs()[static_cast<size_t>(j)].keep;
        ASSERT_EQ(c.kept_row(kept, j, l, h), oracle::top_k(c.row(score, j, l, h), k));
      });
    }
  });
}

// Every byte of the pool: entries move as the oracle's gather says, all others stay. Jobs 0 and 1
// move in place, 2 partly, 3 into new blocks.
TEST_P(CompressionOpTest, Compaction) {
  for (const bool own_history : {true, false}) {
    for_each_case([&](Backend& backend, CompressionCase& c) {
      float* score = c.new_rows();
      fill_random(c, score, 51);
      float* f = c.new_rows();
      fill_random(c, f, 52);
      int32_t* kept = c.new_kept();
      backend.top_k({c.args(), score, kept, c.kept_stride()}, c.stream());
      backend.compact({c.args(), own_history ? nullptr : f, kept, c.kept_stride()}, c.stream());
      CompressionCase::Image want = c.before();
      const CompressionCase::Image& old = c.before();
      const int b = c.shape().block_size;
      for_each_head(c, [&](int j, int l, int h) {
        const CaseJob& job = c.jobs()[static_cast<size_t>(j)];
        const auto rows = c.kept_row(kept, j, l, h);
        const auto new_f = c.row(f, j, l, h);
        const auto old_f = c.history(j, l, h);
        const auto positions = c.positions(j, l, h);
        for (size_t i = 0; i < rows.size(); ++i) {
          const auto from = static_cast<size_t>(rows[i]);
          const size_t bytes = c.entry_bytes();
          const size_t to_at =
              c.entry_offset(job.target[i / static_cast<size_t>(b)], h, static_cast<int>(i) % b);
          const size_t from_at = c.entry_offset(job.source[from / static_cast<size_t>(b)], h,
                                                static_cast<int>(from) % b);
          const auto layer = static_cast<size_t>(l);
          std::copy_n(&old.k[layer][from_at], bytes, &want.k[layer][to_at]);
          std::copy_n(&old.v[layer][from_at], bytes, &want.v[layer][to_at]);
          const size_t at = c.slot_offset(job.slot, h) + i;
          const bool known = from < old_f.size();
          want.scores[layer][at] = !own_history ? new_f[from]
                                   : known      ? static_cast<float>(old_f[from])
                                                : 0.0f;
          want.positions[layer][at] = positions[from];
        }
      });
      const CompressionCase::Image got = c.download();
      EXPECT_TRUE(got.k == want.k);
      EXPECT_TRUE(got.v == want.v);
      EXPECT_TRUE(got.scores == want.scores);
      EXPECT_TRUE(got.positions == want.positions);
    });
  }
}

TEST_P(CompressionOpTest, PeakUpdate) {
  for (const bool to_scratch : {false, true}) {
    for_each_case([&](Backend& backend, CompressionCase& c) {
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

// A job's result does not depend on its neighbours in the batch nor on the number of threads.
TEST_P(CompressionOpTest, ABatchEqualsOneByOneOnAnyNumberOfThreads) {
  const CaseShape shape = shapes()[0];
  std::vector<std::vector<std::vector<float>>> results;
  const auto run = [&](const std::vector<CaseJob>& jobs, int threads) {
    const auto backend = make_backend(GetParam(), threads);
    CompressionCase c(*backend, shape, jobs, 1);
    float* s = c.new_rows();
    float* r = c.new_rows();
    float* p = c.new_rows();
    backend->attention_score({c.args(), 0.125f, s, c.workspace()}, c.stream());
    backend->center_redundancy({c.args(), 0.4f, c.rope(), 64, r, c.workspace()}, c.stream());
    backend->redundancy(
        {c.args(), Redundancy::kFlash, 0.5f, 0.4f, true, c.rope(), 64, p, c.workspace()},
        c.stream());
    std::vector<std::vector<std::vector<float>>> out;  // per job
    for (int j = 0; j < static_cast<int>(jobs.size()); ++j) {
      out.emplace_back();
      for (const float* rows : {s, r, p}) {
        for (int l = 0; l < 2; ++l) {
          for (int h = 0; h < 2; ++h) out.back().push_back(c.row(rows, j, l, h));
        }
      }
    }
    return out;
  };
  std::vector<CaseJob> jobs = jobs_for(shape);
  // The pages are made for all blocks that the jobs name: every run must name the same highest
  // block.
  jobs.push_back({.slot = 3, .length = 16, .keep = 8, .source = {18}, .target = {18}});
  const auto together = run(jobs, 2);
  const auto single_thread = run(jobs, 1);
  EXPECT_TRUE(together == single_thread);
  for (size_t j = 0; j + 1 < jobs.size(); ++j) {
    const auto alone = run({jobs[j], jobs.back()}, 2);
    EXPECT_TRUE(alone[0] == together[j]) << "job " << j;
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
