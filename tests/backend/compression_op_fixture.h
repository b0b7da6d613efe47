// Every op of compression against the oracle, on every backend of this machine: shapes, jobs and
// comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/compression_case.h"
#include "base/error.h"
#include "oracle/compression_oracle.h"

namespace zipage::testing {

// A few shapes that differ in everything: GQA 1 2 3 4 8, head_dim 64 80 96 128 256, KV types,
// partial rotation.
inline std::vector<CaseShape> compression_shapes() {
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
inline std::vector<CaseJob> compression_jobs(const CaseShape& s) {
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
    for (const CaseShape& shape : compression_shapes()) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << shape.head_dim << " group " << shape.group);
      CompressionCase c(*backend, shape, compression_jobs(shape), seed++);
      body(*backend, c);
      EXPECT_TRUE(c.guards_intact());
    }
  }

  // The same for ops that multiply keys. CUDA has no kernel of these for some shapes: there the op
  // must say so, before it writes anything.
  template <typename Body>
  void for_each_key_case(const std::string& op, Body&& body) {
    int taken = 0;
    for_each_case([&](Backend& backend, CompressionCase& c) {
      const int head_dim = c.shape().head_dim;
      if (GetParam() != "cuda" || head_dim % 16 == 0) {
        ++taken;
        body(backend, c);
        return;
      }
      try {
        body(backend, c);
        ADD_FAILURE() << op << " took head_dim " << head_dim;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), StatusCode::kUnimplemented);
        EXPECT_EQ(error.what(), "op " + op + ": head_dim " + std::to_string(head_dim) +
                                    "; the CUDA kernel takes multiples of 16 up to 256");
        EXPECT_TRUE(is_untouched(c));
      }
    });
    EXPECT_GE(taken, 5);
  }

  static bool is_untouched(CompressionCase& c) {
    const CompressionCase::Image now = c.download();
    const CompressionCase::Image& old = c.before();
    return now.k == old.k && now.v == old.v && now.scores == old.scores &&
           now.positions == old.positions;
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

}  // namespace zipage::testing
