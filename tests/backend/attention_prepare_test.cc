// attention_prepare on the CPU: norms, RoPE, what goes to the pages and to the query cache.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/attention_case.h"
#include "backend/cpu/ops.h"
#include "oracle/transformer_oracle.h"

namespace zipage {
namespace {

struct PrepareOptions {
  bool norms = true;
  int32_t rotary_dim = 0;  // 0: head_dim
  bool keep_queries = true;
  bool scales = false;
};

double rounding(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

void check(const AttentionShape& shape,
           const PrepareOptions& options,
           cpu::Isa isa,
           int num_threads) {
  SCOPED_TRACE(fmt::format("{} {}", cpu::isa_name(isa), shape.text()));
  AttentionCase c(shape);
  const int64_t dim = shape.head_dim, num_q = shape.num_q_heads, num_kv = shape.num_kv_heads;
  const int32_t rotary_dim = options.rotary_dim == 0 ? shape.head_dim : options.rotary_dim;
  const int64_t tokens = c.batch.num_tokens;
  std::vector<float> qkv = c.floats(tokens * (num_q + 2 * num_kv) * dim, 2.0f);
  std::vector<float> q_norm = c.floats(dim, 1.0f), k_norm = c.floats(dim, 1.0f);
  const int32_t max_positions = 2000;
  std::vector<float> table(static_cast<size_t>(max_positions * rotary_dim));
  for (int32_t p = 0; p < max_positions; ++p) {
    for (int32_t i = 0; i < rotary_dim / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rotary_dim);
      table[p * rotary_dim + i] = static_cast<float>(std::cos(angle));
      table[p * rotary_dim + rotary_dim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  // A query cache of 3 slots; token t goes to place t unless t is a multiple of 3.
  const int32_t window = 16, slots = 3;
  const int64_t query_elements = num_q * dim;
  std::vector<std::byte> queries(
      static_cast<size_t>(dtype_bytes(shape.query_dtype, slots * window * query_elements)),
      std::byte{kGuardByte});
  std::vector<int32_t> query_slots;
  for (int64_t t = 0; t < tokens; ++t)
    query_slots.push_back(t % 3 == 0 ? -1 : static_cast<int32_t>(t));
  ASSERT_LE(tokens, slots * window);
  c.kv.num_slots = slots;
  c.kv.window_size = window;
  c.layer.queries = options.keep_queries ? queries.data() : nullptr;
  c.batch.query_slots = query_slots.data();
  std::vector<float> k_scale(static_cast<size_t>(num_kv), 0.5f),
      v_scale(static_cast<size_t>(num_kv), 4.0f);
  if (options.scales) {
    c.layer.k_scale = k_scale.data();
    c.layer.v_scale = v_scale.data();
  }
  const std::vector<std::byte> k_before = c.k, v_before = c.v, queries_before = queries;
  std::vector<float> q_out(static_cast<size_t>(tokens * num_q * dim + 2 * kGuardFloats), -123.5f);

  AttentionPrepareArgs args{};
  args.dtype = DType::kF32;
  args.qkv = qkv.data();
  args.q_norm = options.norms ? q_norm.data() : nullptr;
  args.k_norm = options.norms ? k_norm.data() : nullptr;
  args.norm_eps = 1e-6f;
  args.rope_cos_sin = table.data();
  args.rotary_dim = rotary_dim;
  args.batch = &c.batch;
  args.kv = &c.kv;
  args.q_out = q_out.data() + kGuardFloats;
  const std::vector<float> qkv_before = qkv;
  ThreadPool pool(num_threads);
  cpu::CpuContext context = make_context(pool, isa);
  cpu::attention_prepare(args, context);
  EXPECT_EQ(qkv, qkv_before) << "the input is read only";

  const oracle::PreparedHeads expected = oracle::attention_prepare(args);
  // Norm: head_dim / 4 sequential sums; then a few products. Relative to the largest element of a
  // pair: |x| <= 40.
  const double tolerance = 0x1p-24 * (static_cast<double>(dim) / 4 + 16) * 40;
  for (int64_t i = 0; i < tokens * num_q * dim; ++i) {
    ASSERT_NEAR(q_out[kGuardFloats + i], expected.q[i], tolerance);
  }
  for (int64_t i = 0; i < kGuardFloats; ++i) {
    ASSERT_EQ(q_out[i], -123.5f);
    ASSERT_EQ(q_out[q_out.size() - 1 - i], -123.5f);
  }
  std::vector<bool> written(static_cast<size_t>(c.num_blocks * num_kv * shape.block_size * dim));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < num_kv; ++h) {
      const int64_t entry = ((c.kv_slots[t] / shape.block_size * num_kv + h) * shape.block_size +
                             c.kv_slots[t] % shape.block_size) *
                            dim;
      for (int64_t d = 0; d < dim; ++d) {
        const double want_k = expected.k[(t * num_kv + h) * dim + d] / (options.scales ? 0.5 : 1);
        const double want_v = expected.v[(t * num_kv + h) * dim + d] / (options.scales ? 4 : 1);
        ASSERT_NEAR(oracle::read_element(c.k.data(), shape.kv_dtype, entry + d), want_k,
                    tolerance * 2 + std::abs(want_k) * rounding(shape.kv_dtype));
        ASSERT_NEAR(oracle::read_element(c.v.data(), shape.kv_dtype, entry + d), want_v,
                    std::abs(want_v) * rounding(shape.kv_dtype) + 1e-7);
        written[entry + d] = true;
      }
    }
  }
  const size_t element = static_cast<size_t>(dtype_bytes(shape.kv_dtype, 1));
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i]) continue;
    ASSERT_EQ(std::memcmp(&c.k[i * element], &k_before[i * element], element), 0)
        << "another entry of K";
    ASSERT_EQ(std::memcmp(&c.v[i * element], &v_before[i * element], element), 0)
        << "another entry of V";
  }
  const size_t query_bytes = static_cast<size_t>(dtype_bytes(shape.query_dtype, query_elements));
  for (int64_t t = 0; t < slots * window; ++t) {
    const bool kept = options.keep_queries && t < tokens && t % 3 != 0;
    if (!kept) {
      ASSERT_EQ(
          std::memcmp(&queries[t * query_bytes], &queries_before[t * query_bytes], query_bytes), 0);
      continue;
    }
    for (int64_t i = 0; i < query_elements; ++i) {
      const double want = q_out[kGuardFloats + t * query_elements + i];
      ASSERT_NEAR(
          oracle::read_element(queries.data(), shape.query_dtype, t * query_elements + i), want,
          std::abs(want) * (shape.query_dtype == DType::kF32 ? 0 : rounding(shape.query_dtype)) +
              1e-7);
    }
  }
}

TEST(AttentionPrepare, MatchesOracle) {
  uint32_t seed = 1;
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t dim : {8, 36, 64, 80, 96, 128, 256}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        AttentionShape shape;
        shape.num_kv_heads = 1 + static_cast<int32_t>(seed % 3);
        shape.num_q_heads = shape.num_kv_heads * (1 + static_cast<int32_t>(seed % 4));
        shape.head_dim = dim;
        shape.kv_dtype = dtype;
        shape.query_dtype = seed % 2 == 0 ? dtype : DType::kF32;
        shape.seed = seed++;
        shape.rows = {{1, 1}, {5, 40}, {17, 17}, {1, 100}};
        PrepareOptions options;
        check(shape, options, isa, 1);
        options.norms = false;
        options.rotary_dim = dim / 2;
        options.scales = true;
        check(shape, options, isa, 2);
        options.keep_queries = false;
        check(shape, options, isa, 1);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The kernels' own conversions against tensor/dtype.h: every bf16 and f16 value and the halfway
// points around it.
TEST(AttentionPrepare, ConversionsRoundAsDType) {
  AttentionShape shape;
  shape.num_q_heads = 1;
  shape.head_dim = 1024;
  shape.rows = {{1, 1}};
  ThreadPool pool(1);
  for (const cpu::Isa isa : available_isas()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      shape.kv_dtype = dtype;
      AttentionCase c(shape);
      cpu::CpuContext context = make_context(pool, isa);
      std::vector<float> qkv(3 * 1024), q_out(1024);
      AttentionPrepareArgs args{};
      args.dtype = DType::kF32;
      args.qkv = qkv.data();
      args.batch = &c.batch;
      args.kv = &c.kv;
      args.q_out = q_out.data();
      for (uint32_t base = 0; base < 0x10000; base += 1024 / 4) {
        for (uint32_t i = 0; i < 1024; ++i) {
          const auto bits = static_cast<uint16_t>(base + i / 4);
          const float value = dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
          uint32_t wide;
          std::memcpy(&wide, &value, 4);
          const uint32_t half = dtype == DType::kBF16 ? 0x8000u : 0x1000u;
          const uint32_t nudged = i % 4 == 0   ? wide
                                  : i % 4 == 1 ? wide + half - 1
                                  : i % 4 == 2 ? wide + half
                                               : wide + half + 1;
          std::memcpy(&qkv[2 * 1024 + i], &nudged, 4);
        }
        cpu::attention_prepare(args, context);
        const int64_t entry = c.entry(0, 0, 0);
        for (uint32_t i = 0; i < 1024; ++i) {
          uint16_t got;
          std::memcpy(&got, &c.v[(entry + i) * 2], 2);
          const float x = qkv[2 * 1024 + i];
          const uint16_t want = dtype == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
          if (std::isnan(x)) {
            ASSERT_TRUE(std::isnan(dtype == DType::kBF16 ? bf16_to_f32(got) : f16_to_f32(got)));
          } else {
            ASSERT_EQ(got, want) << cpu::isa_name(isa) << " " << to_string(dtype) << " of " << x;
          }
        }
      }
    }
  }
}

TEST(AttentionPrepare, TokensAloneGiveTheSameBits) {
  for (const cpu::Isa isa : available_isas()) {
    AttentionShape shape;
    shape.num_q_heads = 6;
    shape.num_kv_heads = 2;
    shape.rows = {{40, 40}};
    AttentionCase c(shape);
    const std::vector<float> qkv = c.floats(40 * 10 * 64, 1.0f), norm = c.floats(64, 1.0f),
                             table = c.floats(100 * 64, 1.0f);
    const auto run = [&](int threads, bool single) {
      ThreadPool pool(threads);
      cpu::CpuContext context = make_context(pool, isa);
      std::vector<float> q_out(40 * 6 * 64);
      for (int32_t t = 0; t < (single ? 40 : 1); ++t) {
        StepBatch batch = c.batch;
        if (single) {
          batch.num_tokens = 1;
          batch.positions += t;
          batch.kv_slots += t;
        }
        AttentionPrepareArgs args{};
        args.dtype = DType::kF32;
        args.qkv = qkv.data() + t * 10 * 64;
        args.q_norm = args.k_norm = norm.data();
        args.norm_eps = 1e-6f;
        args.rope_cos_sin = table.data();
        args.rotary_dim = 64;
        args.batch = &batch;
        args.kv = &c.kv;
        args.q_out = q_out.data() + t * 6 * 64;
        cpu::attention_prepare(args, context);
      }
      return std::make_pair(q_out, c.k);
    };
    const auto together = run(3, false);
    EXPECT_EQ(run(1, true), together) << cpu::isa_name(isa);
  }
}

}  // namespace
}  // namespace zipage
