// rms_norm, silu_mul and gather_rows on the CPU against the oracle.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "backend/attention_case.h"
#include "backend/cpu/ops.h"
#include "oracle/transformer_oracle.h"

namespace zipage {
namespace {

std::vector<float> normal_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

constexpr float kGuard = -77.25f;

std::vector<float> guarded(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count + 2 * kGuardFloats), kGuard);
}

void expect_guards(const std::vector<float>& values) {
  for (int64_t i = 0; i < kGuardFloats; ++i) {
    ASSERT_EQ(values[i], kGuard);
    ASSERT_EQ(values[values.size() - 1 - i], kGuard);
  }
}

TEST(Elementwise, RmsNormMatchesOracle) {
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t hidden : {1, 7, 64, 100, 384, 1024, 5120}) {
      for (const bool with_residual : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} hidden {} residual {}", cpu::isa_name(isa), hidden, with_residual));
        const int32_t tokens = 5;
        const std::vector<float> x = normal_floats(tokens * hidden, 1),
                                 weight = normal_floats(hidden, 2),
                                 before = normal_floats(tokens * hidden, 3);
        std::vector<float> residual = guarded(tokens * hidden), out = guarded(tokens * hidden);
        std::copy(before.begin(), before.end(), residual.begin() + kGuardFloats);
        RmsNormArgs args{};
        args.dtype = DType::kF32;
        args.x = x.data();
        args.residual = with_residual ? residual.data() + kGuardFloats : nullptr;
        args.weight = weight.data();
        args.eps = 1e-5f;
        args.num_tokens = tokens;
        args.hidden = hidden;
        args.out = out.data() + kGuardFloats;
        const oracle::RmsNormResult expected = oracle::rms_norm(args);
        ThreadPool pool(2);
        cpu::CpuContext context = make_context(pool, isa);
        cpu::rms_norm(args, context);
        // Half the relative error of a sum of squares over at most hidden / 16 sequential terms,
        // and four roundings.
        const double relative = 0x1p-24 * (hidden / 32.0 + 8);
        for (int64_t i = 0; i < tokens * hidden; ++i) {
          ASSERT_NEAR(out[kGuardFloats + i], expected.out[i],
                      std::abs(expected.out[i]) * relative + 1e-6);
          if (with_residual) {
            ASSERT_EQ(residual[kGuardFloats + i], before[i] + x[i]);
          }
        }
        expect_guards(out);
        expect_guards(residual);
        // In place gives the same bits, and so does every row alone.
        std::vector<float> in_place = x;
        std::copy(before.begin(), before.end(), residual.begin() + kGuardFloats);
        for (int32_t t = 0; t < tokens; ++t) {
          RmsNormArgs one = args;
          one.num_tokens = 1;
          one.x = one.out = in_place.data() + t * hidden;
          if (with_residual) one.residual = residual.data() + kGuardFloats + t * hidden;
          cpu::rms_norm(one, context);
        }
        ASSERT_TRUE(std::equal(in_place.begin(), in_place.end(), out.begin() + kGuardFloats));
      }
    }
  }
}

TEST(Elementwise, SiluMulMatchesOracle) {
  for (const cpu::Isa isa : available_isas()) {
    for (const int32_t width : {1, 5, 64, 131, 1024}) {
      const int32_t tokens = 3;
      std::vector<float> gate_up = normal_floats(tokens * 2 * width, 5);
      for (size_t i = 0; i < gate_up.size(); i += 7) gate_up[i] *= 40;  // far tails
      gate_up[0] = -1e30f;
      std::vector<float> out = guarded(tokens * width);
      SiluMulArgs args{DType::kF32, gate_up.data(), tokens, width, out.data() + kGuardFloats};
      const std::vector<double> expected = oracle::silu_mul(args);
      ThreadPool pool(2);
      cpu::CpuContext context = make_context(pool, isa);
      cpu::silu_mul(args, context);
      for (int64_t i = 0; i < tokens * width; ++i) {
        // Where e^-g is kept at e^88 the result is below 1e-6 |g| instead of 0.
        const double tolerance = std::abs(expected[i]) * 4e-7 + 1e-30;
        if (std::abs(expected[i]) < 1e-30) {
          ASSERT_NEAR(out[kGuardFloats + i], 0, 1e-6);
        } else {
          ASSERT_NEAR(out[kGuardFloats + i], expected[i], tolerance) << cpu::isa_name(isa);
        }
      }
      expect_guards(out);
    }
  }
}

TEST(Elementwise, GatherRowsCopies) {
  const std::vector<float> x = normal_floats(10 * 33, 9);
  const std::vector<int32_t> rows = {9, 0, 0, 4};
  std::vector<float> out = guarded(4 * 33);
  ThreadPool pool(2);
  cpu::CpuContext context = make_context(pool, cpu::Isa::kScalar);
  cpu::gather_rows({DType::kF32, x.data(), rows.data(), 4, 33, out.data() + kGuardFloats}, context);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t d = 0; d < 33; ++d) ASSERT_EQ(out[kGuardFloats + i * 33 + d], x[rows[i] * 33 + d]);
  }
  expect_guards(out);
}

TEST(Elementwise, NoTokensIsFine) {
  ThreadPool pool(1);
  cpu::CpuContext context = make_context(pool, cpu::Isa::kScalar);
  RmsNormArgs norm{};
  norm.dtype = DType::kF32;
  norm.hidden = 8;
  EXPECT_NO_THROW(cpu::rms_norm(norm, context));
  EXPECT_NO_THROW(cpu::silu_mul(SiluMulArgs{DType::kF32, nullptr, 0, 8, nullptr}, context));
  EXPECT_NO_THROW(
      cpu::gather_rows(GatherRowsArgs{DType::kF32, nullptr, nullptr, 0, 8, nullptr}, context));
}

}  // namespace
}  // namespace zipage
