// paged_attention on the CPU against the oracle, and the invariances of its sums.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/attention_case.h"
#include "backend/cpu/ops.h"
#include "oracle/transformer_oracle.h"

namespace zipage {
namespace {

// The op's output; fails when it writes outside it or outside its workspace.
std::vector<float> attend(AttentionCase& c, cpu::Isa isa, int num_threads) {
  ThreadPool pool(num_threads);
  cpu::CpuContext context = make_context(pool, isa);
  Backend::Limits limits{};
  limits.max_tokens = std::max(1, c.batch.num_tokens);
  limits.max_rows = std::max(1, c.batch.num_rows);
  limits.max_kv_len = std::max(1, c.batch.max_kv_len);
  limits.num_q_heads = c.shape.num_q_heads;
  limits.num_kv_heads = c.shape.num_kv_heads;
  limits.head_dim = c.shape.head_dim;
  limits.block_size = c.shape.block_size;
  const size_t workspace_bytes = cpu::attention_workspace_bytes(limits, context);
  std::vector<uint8_t> workspace(workspace_bytes + 64, kGuardByte);
  const int64_t count =
      static_cast<int64_t>(c.batch.num_tokens) * c.shape.num_q_heads * c.shape.head_dim;
  std::vector<float> out(static_cast<size_t>(count + 2 * kGuardFloats));
  std::memset(out.data(), kGuardByte, out.size() * sizeof(float));
  float guard;
  std::memset(&guard, kGuardByte, sizeof guard);

  PagedAttentionArgs args{};
  args.dtype = DType::kF32;
  args.q = c.q.data();
  args.batch = &c.batch;
  args.kv = &c.kv;
  args.layer = 0;
  args.scale = 1.0f / std::sqrt(static_cast<float>(c.shape.head_dim));
  args.out = out.data() + kGuardFloats;
  args.workspace = workspace.data();
  cpu::paged_attention(args, context);

  for (int64_t i = 0; i < kGuardFloats; ++i) {
    EXPECT_EQ(std::memcmp(&out[i], &guard, 4), 0) << "written before the output";
    EXPECT_EQ(std::memcmp(&out[kGuardFloats + count + i], &guard, 4), 0)
        << "written behind the output";
  }
  for (size_t i = workspace_bytes; i < workspace.size(); ++i) {
    EXPECT_EQ(workspace[i], kGuardByte) << "written behind the workspace";
  }
  return {out.begin() + kGuardFloats, out.begin() + kGuardFloats + count};
}

void expect_oracle(AttentionCase& c, const std::vector<float>& out) {
  PagedAttentionArgs args{};
  args.dtype = DType::kF32;
  args.q = c.q.data();
  args.batch = &c.batch;
  args.kv = &c.kv;
  args.scale = 1.0f / std::sqrt(static_cast<float>(c.shape.head_dim));
  const oracle::AttentionResult expected = oracle::paged_attention(args);
  const int64_t dim = c.shape.head_dim;
  for (size_t i = 0; i < out.size(); ++i) {
    // Rounding of a score: head_dim / 4 sequential sums (the narrowest vector), 2 levels of tree,
    // the scale; a score's error e scales a weight by 1 + e, in numerator and denominator. Then at
    // most 256 sequential sums of a span, and two roundings a span joined.
    const double epsilon = 0x1p-24;
    const double score_error =
        epsilon * (static_cast<double>(dim) / 4 + 4) * expected.max_score[i / dim];
    const double sum_error = epsilon * (256 + 2.0 * c.batch.max_kv_len / 128 + 8);
    const double tolerance = (2 * score_error + 2 * sum_error) * expected.max_value[i / dim];
    ASSERT_NEAR(out[i], expected.out[i], std::min(tolerance, 1e-3))
        << c.shape.text() << " at " << i;
  }
}

TEST(Attention, MatchesOracleOverShapes) {
  uint32_t seed = 1;
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t dim : {64, 80, 96, 128, 256}) {
      for (const int32_t group : {1, 2, 3, 4, 8}) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          AttentionShape shape;
          shape.num_kv_heads = 1 + static_cast<int32_t>(seed % 2);
          shape.num_q_heads = group * shape.num_kv_heads;
          shape.head_dim = dim;
          shape.block_size = seed % 3 == 0 ? 16 : seed % 3 == 1 ? 64 : 256;
          shape.kv_dtype = dtype;
          shape.seed = seed++;
          shape.rows = {
              {1, 1}, {1, 7}, {3, 260}, {1, shape.block_size}, {5, 5}, {1, shape.block_size + 1}};
          AttentionCase c(shape);
          SCOPED_TRACE(fmt::format("{} {}", cpu::isa_name(isa), shape.text()));
          expect_oracle(c, attend(c, isa, 1));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Attention, OddHeadDimAndManyHeads) {
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t dim : {8, 36, 72}) {
      AttentionShape shape;
      shape.num_q_heads = 100;  // one KV head for more heads than a work item holds
      shape.head_dim = dim;
      shape.block_size = 48;  // five blocks a span
      shape.kv_dtype = DType::kBF16;
      shape.rows = {{2, 500}, {1, 241}, {1, 240}};
      AttentionCase c(shape);
      expect_oracle(c, attend(c, isa, 2));
    }
  }
}

TEST(Attention, NoTokens) {
  AttentionCase c(AttentionShape{});
  EXPECT_TRUE(attend(c, cpu::Isa::kScalar, 1).empty());
}

TEST(Attention, KvScalesMultiply) {
  AttentionShape shape;
  shape.num_q_heads = 4;
  shape.num_kv_heads = 2;
  shape.rows = {{2, 40}};
  for (const cpu::Isa isa : available_isas()) {
    AttentionCase c(shape);
    const float k_scale[] = {0.5f, 1.25f}, v_scale[] = {3.0f, 0.75f};
    c.layer.k_scale = k_scale;
    c.layer.v_scale = v_scale;
    expect_oracle(c, attend(c, isa, 1));
  }
}

// A NaN among a row's own entries must show in its results and in no other row's.
TEST(Attention, NanStaysInItsRow) {
  for (const cpu::Isa isa : available_isas()) {
    AttentionShape shape;
    shape.num_q_heads = 3;
    shape.rows = {{1, 30}, {1, 30}, {2, 30}};
    AttentionCase c(shape);
    write_element(c.k.data(), DType::kF32, c.entry(1, 0, 12) + 3, NAN);
    // The last entry: token 0 of row 2 does not see it.
    write_element(c.v.data(), DType::kF32, c.entry(2, 0, 29), NAN);
    const std::vector<float> out = attend(c, isa, 1);
    const int64_t token = 3 * 64;
    for (int64_t i = 0; i < 4 * token; ++i) {
      const bool spoiled = i / token == 1 || (i / token == 3 && i % 64 == 0);
      EXPECT_EQ(std::isnan(out[i]), spoiled) << cpu::isa_name(isa) << " at " << i;
    }
  }
}

AttentionShape mixed_batch(int32_t block_size, int32_t head_dim, DType dtype) {
  AttentionShape shape;
  shape.num_q_heads = 6;
  shape.num_kv_heads = 2;
  shape.head_dim = head_dim;
  shape.block_size = block_size;
  shape.kv_dtype = dtype;
  shape.rows = {{1, 700}, {1, 3}, {40, 300}, {1, 513}, {17, 17}, {2, 1025}, {1, 256}};
  return shape;
}

// The bits of a row's result for 1, 2 and 5 threads: the split over spans must not show.
TEST(Attention, ThreadsDoNotMatter) {
  for (const cpu::Isa isa : available_isas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      AttentionCase c(mixed_batch(64, 80, dtype));
      const std::vector<float> one = attend(c, isa, 1);
      expect_oracle(c, one);
      EXPECT_EQ(attend(c, isa, 2), one) << cpu::isa_name(isa);
      EXPECT_EQ(attend(c, isa, 5), one) << cpu::isa_name(isa);
      AttentionShape lone = mixed_batch(16, 128, dtype);
      lone.rows = {{1, 3000}};
      AttentionCase d(lone);
      const std::vector<float> alone = attend(d, isa, 1);
      expect_oracle(d, alone);
      EXPECT_EQ(attend(d, isa, 2), alone) << cpu::isa_name(isa);
      EXPECT_EQ(attend(d, isa, 5), alone) << cpu::isa_name(isa);
    }
  }
}

// Each token of a mixed batch computed again as a decode of its own: prefill adds in the order of
// decode, and no row sees the others.
TEST(Attention, BatchAndChunkDoNotMatter) {
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t block_size : {16, 64, 256}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        AttentionCase c(mixed_batch(block_size, 96, dtype));
        const std::vector<float> together = attend(c, isa, 2);
        const int64_t width = static_cast<int64_t>(c.shape.num_q_heads) * c.shape.head_dim;
        const std::vector<float> q = c.q;
        const std::vector<int32_t> tables = c.tables;
        for (int32_t token = 0; token < c.row_begin.back(); ++token) {
          const int32_t row = c.row_of_token[token];
          const int32_t tokens = c.shape.rows[row].num_tokens;
          const int32_t begin = row == 0 ? 0 : [&] {
            int32_t sum = 0;
            for (int32_t r = 0; r < row; ++r) sum += c.shape.rows[r].num_tokens;
            return sum;
          }();
          StepBatch batch = c.batch;
          const int32_t row_begin[] = {0, 1};
          const int32_t kv_len[] = {c.shape.rows[row].kv_len - tokens + token - begin + 1};
          batch.num_tokens = batch.num_rows = batch.max_row_tokens = 1;
          batch.max_kv_len = kv_len[0];
          batch.row_begin = row_begin;
          batch.kv_lens = kv_len;
          batch.block_tables =
              tables.data() + static_cast<int64_t>(row) * c.batch.block_table_stride;
          AttentionCase& alone = c;
          const StepBatch whole = c.batch;
          alone.batch = batch;
          alone.q.assign(q.begin() + token * width, q.begin() + (token + 1) * width);
          const std::vector<float> out = attend(alone, isa, 1);
          alone.batch = whole;
          alone.q = q;
          ASSERT_TRUE(std::equal(out.begin(), out.end(), together.begin() + token * width))
              << cpu::isa_name(isa) << " " << c.shape.text() << " token " << token;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zipage
