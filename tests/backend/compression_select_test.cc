// Selection and compaction, method.md 3.1.7 and 3.1.8, and what holds of all compression ops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/compression_op_fixture.h"

namespace zipage::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

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

// A job's result does not depend on its neighbours in the batch nor on the number of threads.
TEST_P(CompressionOpTest, ABatchEqualsOneByOneOnAnyNumberOfThreads) {
  const CaseShape shape = compression_shapes()[0];
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
  std::vector<CaseJob> jobs = compression_jobs(shape);
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

}  // namespace
}  // namespace zipage::testing
