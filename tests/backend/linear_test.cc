// The CPU's linear op and embedding for every instruction set of this machine, against
// double-precision loops.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/error.h"
#include "tensor/dequantize.h"

namespace zipage {
namespace {

constexpr const char* kIsas[] = {"scalar", "avx2", "avx512", "amx"};

// A matrix in a file's type and what its elements are worth.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<float> values;
  HostTensor tensor;
};

Matrix make_matrix(DType dtype, const Shape& shape, const std::vector<float>& wanted) {
  Matrix m;
  const auto count = static_cast<size_t>(num_elements(shape));
  m.bytes.resize(static_cast<size_t>(dtype_bytes(dtype, num_elements(shape))));
  m.values.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(wanted[i]) : f32_to_bf16(wanted[i]);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(m.bytes.data() + 4 * i, &wanted[i], 4);
        break;
      default:
        std::memcpy(m.bytes.data() + 2 * i, &half, 2);
        break;
    }
    m.values[i] = dtype == DType::kF32   ? wanted[i]
                  : dtype == DType::kF16 ? f16_to_f32(half)
                                         : bf16_to_f32(half);
  }
  m.tensor = {"w", dtype, shape, m.bytes.data()};
  return m;
}

// Random blocks of a packed type. `integers`: scales of 1 and small whole minima; scales and minima
// within a block of 256 of 3 at most.
Matrix make_packed(DType dtype, const Shape& shape, std::mt19937& random, bool integers) {
  Matrix m;
  m.bytes.resize(static_cast<size_t>(dtype_bytes(dtype, num_elements(shape))));
  for (std::byte& b : m.bytes) b = static_cast<std::byte>(random());
  const bool big = packed_block_elements(dtype) == 256;
  const auto block_bytes = static_cast<size_t>(packed_block_bytes(dtype));
  std::uniform_real_distribution<float> uniform(0.5f, 1.0f);
  for (size_t at = 0; at < m.bytes.size(); at += block_bytes) {
    const float scale = integers ? 1.0f : uniform(random) * (big ? 1e-3f : 0.01f);
    const uint16_t d = f32_to_f16(scale), second = f32_to_f16(integers ? 3.0f : -4 * scale);
    const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
                         dtype == DType::kQ5_K;
    std::memcpy(m.bytes.data() + at + (dtype == DType::kQ6_K ? 208 : 0), &d, 2);
    if (has_min) std::memcpy(m.bytes.data() + at + 2, &second, 2);
    if (!integers || !big) continue;
    std::byte* inner = m.bytes.data() + at + (dtype == DType::kQ6_K ? 192 : 4);
    for (int i = 0; i < (dtype == DType::kQ6_K ? 16 : 12); ++i)
      inner[i] &= static_cast<std::byte>(i < 8 || dtype == DType::kQ6_K ? 0x03 : 0x33);
  }
  m.tensor = {"w", dtype, shape, m.bytes.data()};
  m.values.resize(static_cast<size_t>(num_elements(shape)));
  dequantize(m.tensor, m.values);
  return m;
}

std::vector<float> random_values(std::mt19937& random, int64_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = uniform(random);
  return values;
}

std::vector<float> random_integers(std::mt19937& random, int64_t count) {
  std::uniform_int_distribution<int> uniform(-8, 8);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(uniform(random));
  return values;
}

Matrix make_weights(DType dtype, const Shape& shape, std::mt19937& random, bool integers) {
  if (is_packed(dtype)) return make_packed(dtype, shape, random, integers);
  const int64_t count = num_elements(shape);
  return make_matrix(dtype, shape,
                     integers ? random_integers(random, count) : random_values(random, count));
}

// Null where this machine lacks the instruction set.
std::unique_ptr<cpu::CpuBackend> make_backend(const std::string& isa,
                                              DType dtype = DType::kF32,
                                              int threads = 1) {
  BackendOptions options;
  options.isa = isa;
  options.num_threads = threads;
  options.dtype = dtype;
  try {
    return std::make_unique<cpu::CpuBackend>(options);
  } catch (const Error& error) {
    if (error.code() != StatusCode::kUnavailable) throw;
    return nullptr;
  }
}

// Calls the op between guard zones and checks that they stay as they were.
std::vector<float> run_linear(cpu::CpuBackend& backend,
                              const LinearWeight& weight,
                              const std::vector<float>& x,
                              int64_t rows) {
  constexpr size_t kGuard = 64;
  constexpr float kGuardValue = 12345.0f;
  const auto size = static_cast<size_t>(rows * weight.out_features());
  std::vector<float> out(size + 2 * kGuard, kGuardValue);
  // An exact copy, so that a sanitizer sees a read beyond the rows that are there.
  const std::vector<float> input(x.begin(), x.begin() + rows * weight.in_features());
  const auto stream = backend.create_stream(false);
  backend.linear({DType::kF32, DType::kF32, &weight, input.data(), static_cast<int32_t>(rows),
                  out.data() + kGuard},
                 *stream);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[i], kGuardValue) << "before the output, at " << i;
    EXPECT_EQ(out[kGuard + size + i], kGuardValue) << "behind the output, at " << i;
  }
  return {out.begin() + kGuard, out.begin() + static_cast<std::ptrdiff_t>(kGuard + size)};
}

// How far a product's inputs and packed weights may be off, relative to 1 = the largest input: what
// this backend rounds them to.
double rounding_error(const cpu::CpuBackend& backend, DType weights) {
  const cpu::CpuContext& c = backend.context();
  if (c.dtype != DType::kBF16 || c.isa == cpu::Isa::kScalar) return 0;
  if (is_packed(weights))
    return 1.0 / 254 +
           (c.isa == cpu::Isa::kAmx ? 0x1p-7 : 0.0);  // 8 bits a block; bf16 both for many rows
  return weights == DType::kBF16 && c.features.avx512_bf16 ? 0x1p-8 : 0.0;
}

// Expects out = x W^T + bias within the error of f32 sums of `in` terms.
void expect_near_oracle(const std::vector<float>& out,
                        const std::vector<float>& x,
                        const std::vector<float>& w,
                        const std::vector<float>& bias,
                        int64_t rows,
                        int64_t outputs,
                        int64_t in,
                        double input_error) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(n)];
      double size = std::abs(sum), weight_size = 0;
      for (int64_t k = 0; k < in; ++k) {
        const double product = static_cast<double>(x[static_cast<size_t>(r * in + k)]) *
                               w[static_cast<size_t>(n * in + k)];
        sum += product;
        size += std::abs(product);
        weight_size += std::abs(static_cast<double>(w[static_cast<size_t>(n * in + k)]));
      }
      const double tolerance =
          size * static_cast<double>(in + 2) * 0x1p-24 + weight_size * input_error + 1e-30;
      ASSERT_NEAR(out[static_cast<size_t>(r * outputs + n)], sum, tolerance)
          << "row " << r << " output " << n << " of " << rows << " x " << outputs << " x " << in;
    }
  }
}

struct Case {
  std::string isa;
  DType weights;
  DType compute;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* isa : kIsas) {
    for (const DType weights :
         {DType::kBF16, DType::kF16, DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
          DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      for (const DType compute : {DType::kF32, DType::kBF16})
        cases.push_back({isa, weights, compute});
    }
  }
  return cases;
}

class Linear : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    backend_ = make_backend(GetParam().isa, GetParam().compute);
    if (backend_ == nullptr) GTEST_SKIP() << "this machine has no " << GetParam().isa;
  }
  std::unique_ptr<cpu::CpuBackend> backend_;
};

// What a packed type can have: whole blocks.
int64_t whole_blocks(int64_t in, DType dtype) {
  const int64_t block = packed_block_elements(dtype);
  return (in + block - 1) / block * block;
}

constexpr int64_t kIns[] = {1, 2, 3, 31, 33, 64, 384, 1031};
constexpr int64_t kOuts[] = {1, 15, 16, 17, 64, 100, 320};
constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 33, 40, 64, 121, 250};

TEST_P(Linear, MatchesDoublePrecision) {
  std::mt19937 random(1);
  const double input_error = rounding_error(*backend_, GetParam().weights);
  int64_t last = 0;
  for (const int64_t some : kIns) {
    const int64_t in = whole_blocks(some, GetParam().weights);
    if (in == std::exchange(last, in)) continue;
    for (const int64_t outputs : kOuts) {
      const Matrix w = make_weights(GetParam().weights, {outputs, in}, random, false);
      const auto weight = backend_->make_linear({&w.tensor, 1}, {});
      EXPECT_EQ(weight->out_features(), outputs);
      EXPECT_EQ(weight->in_features(), in);
      const std::vector<float> x = random_values(random, 17 * in);
      for (const int64_t rows : {1, 2, 3, 5, 7, 17}) {
        expect_near_oracle(run_linear(*backend_, *weight, x, rows), x, w.values, {}, rows, outputs,
                           in, input_error);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Products and sums of small integers are exact in every type: any slip in layout or tail shows as
// a different number.
TEST_P(Linear, IsExactOnIntegers) {
  std::mt19937 random(2);
  int64_t last = 0;
  for (const int64_t some : kIns) {
    const int64_t in = whole_blocks(some, GetParam().weights);
    if (in == std::exchange(last, in)) continue;
    for (const int64_t outputs : kOuts) {
      if (in * outputs > 64 * 320 && outputs != 100) continue;
      const Matrix w = make_weights(GetParam().weights, {outputs, in}, random, true);
      const Matrix b = make_matrix(DType::kF32, {outputs}, random_integers(random, outputs));
      const auto weight = backend_->make_linear({&w.tensor, 1}, {&b.tensor, 1});
      std::vector<float> x = random_integers(random, 250 * in);
      if (is_packed(GetParam().weights)) {  // whole numbers that 8 bits a block hold as they are
        for (size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 5 ? 127.0f : x[i] * 15;
      }
      std::vector<float> expected(static_cast<size_t>(250 * outputs));
      for (int64_t r = 0; r < 250; ++r) {
        for (int64_t n = 0; n < outputs; ++n) {
          int64_t sum = static_cast<int64_t>(b.values[static_cast<size_t>(n)]);
          for (int64_t k = 0; k < in; ++k) {
            sum += static_cast<int64_t>(x[static_cast<size_t>(r * in + k)]) *
                   static_cast<int64_t>(w.values[static_cast<size_t>(n * in + k)]);
          }
          expected[static_cast<size_t>(r * outputs + n)] = static_cast<float>(sum);
        }
      }
      for (const int64_t rows : kRowCounts) {
        const std::vector<float> out = run_linear(*backend_, *weight, x, rows);
        const std::vector<float> wanted(expected.begin(), expected.begin() + rows * outputs);
        ASSERT_EQ(out, wanted) << rows << " x " << outputs << " x " << in;
      }
    }
  }
}

// A row's result depends neither on the rows beside it nor on the number of threads. (f32
// arithmetic; bf16 may differ.)
TEST_P(Linear, RowsAreIndependent) {
  if (GetParam().compute != DType::kF32 && GetParam().isa != "avx2") return;
  std::mt19937 random(3);
  const auto two = make_backend(GetParam().isa, GetParam().compute, 2);
  const auto three = make_backend(GetParam().isa, GetParam().compute, 3);
  for (const auto& [outputs, wanted_in] :
       {std::pair<int64_t, int64_t>{640, 384}, {100, 1031}, {17, 3}}) {
    const int64_t in = whole_blocks(wanted_in, GetParam().weights);
    const Matrix w = make_weights(GetParam().weights, {outputs, in}, random, false);
    const Matrix b = make_matrix(DType::kF32, {outputs}, random_values(random, outputs));
    const auto weight = backend_->make_linear({&w.tensor, 1}, {&b.tensor, 1});
    const std::vector<float> x = random_values(random, 130 * in);
    const std::vector<float> all = run_linear(*backend_, *weight, x, 130);
    EXPECT_EQ(run_linear(*two, *weight, x, 130), all);
    EXPECT_EQ(run_linear(*three, *weight, x, 130), all);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 11, 64}) {
      for (const int64_t first : {0, 7, 66}) {
        const std::vector<float> some(x.begin() + first * in, x.begin() + (first + rows) * in);
        const std::vector<float> wanted(all.begin() + first * outputs,
                                        all.begin() + (first + rows) * outputs);
        EXPECT_EQ(run_linear(*backend_, *weight, some, rows), wanted)
            << rows << " rows from " << first;
        EXPECT_EQ(run_linear(*two, *weight, some, rows), wanted) << rows << " rows from " << first;
      }
    }
  }
}

// Tiles and vectors that multiply 8-bit inputs give the same bits, so that a request's text does
// not depend on how many others run beside it. Inputs that need one chunk of steps and several.
TEST_P(Linear, TilesOfBytesEqualVectors) {
  if (GetParam().isa != "amx" || GetParam().compute != DType::kBF16) return;
  if (!is_packed(GetParam().weights)) return;
  const auto vectors = make_backend("avx512", DType::kBF16);
  ASSERT_NE(vectors, nullptr);
  std::mt19937 random(8);
  for (const auto& [outputs, wanted_in] :
       {std::pair<int64_t, int64_t>{100, 32}, {37, 576}, {16, 1056}, {48, 2560}}) {
    const int64_t in = whole_blocks(wanted_in, GetParam().weights);
    const Matrix w = make_weights(GetParam().weights, {outputs, in}, random, false);
    const Matrix b = make_matrix(DType::kF32, {outputs}, random_values(random, outputs));
    const auto by_tiles = backend_->make_linear({&w.tensor, 1}, {&b.tensor, 1});
    const auto by_vectors = vectors->make_linear({&w.tensor, 1}, {&b.tensor, 1});
    constexpr int64_t kMostRows = 95;  // with more, weights are expanded to bf16
    const std::vector<float> x = random_values(random, kMostRows * in);
    for (int64_t rows = 1; rows <= kMostRows; rows += rows < 41 ? 1 : 27) {
      ASSERT_EQ(run_linear(*backend_, *by_tiles, x, rows),
                run_linear(*vectors, *by_vectors, x, rows))
          << rows << " x " << outputs << " x " << in;
    }
  }
}

TEST_P(Linear, NanStaysInItsRowAndOutput) {
  if (is_packed(GetParam().weights)) return;  // see NanInputsSpoilTheirRow
  std::mt19937 random(4);
  constexpr int64_t kIn = 65, kOut = 37, kRows = 40;
  std::vector<float> values = random_values(random, kOut * kIn);
  values[20 * kIn + 64] = std::numeric_limits<float>::quiet_NaN();
  const Matrix w = make_matrix(GetParam().weights, {kOut, kIn}, values);
  const auto weight = backend_->make_linear({&w.tensor, 1}, {});
  for (const int64_t rows : {int64_t{1}, int64_t{5}, kRows}) {
    std::vector<float> x = random_values(random, rows * kIn);
    x[static_cast<size_t>((rows - 1) * kIn + 64)] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = run_linear(*backend_, *weight, x, rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < kOut; ++n) {
        EXPECT_EQ(std::isnan(out[static_cast<size_t>(r * kOut + n)]), r == rows - 1 || n == 20)
            << r << " " << n;
      }
    }
  }
}

TEST_P(Linear, NanInputsSpoilTheirRow) {
  std::mt19937 random(7);
  const int64_t in = whole_blocks(64, GetParam().weights);
  const Matrix w = make_weights(GetParam().weights, {37, in}, random, false);
  const auto weight = backend_->make_linear({&w.tensor, 1}, {});
  for (const int64_t rows : {1, 5, 40}) {
    std::vector<float> x = random_values(random, rows * in);
    x[static_cast<size_t>((rows - 1) * in + 33)] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = run_linear(*backend_, *weight, x, rows);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), static_cast<int64_t>(i) / 37 == rows - 1) << i;
    }
  }
}

TEST_P(Linear, StacksPartsWithTheirBiases) {
  std::mt19937 random(5);
  const bool packed = is_packed(GetParam().weights);
  if (packed && GetParam().compute != DType::kF32) return;  // these inputs are not exact in 8 bits
  const int64_t in = packed ? packed_block_elements(GetParam().weights) : 50;
  constexpr int kParts = 7;
  const int64_t outs[kParts] = {33, 7, 16, 3, 5, 17, 2};
  const DType other = GetParam().weights == DType::kF32 ? DType::kBF16 : DType::kF32;
  const DType own = GetParam().weights;  // parts of one type beside each other are one segment: six
  const DType types[kParts] = {own, own, other, own, other, own, other};
  std::vector<Matrix> matrices, biases;
  std::vector<HostTensor> parts, bias_parts;
  std::vector<float> all_w, all_b;
  for (int i = 0; i < kParts; ++i) {
    matrices.push_back(make_weights(types[i], {outs[i], in}, random, true));
    biases.push_back(make_matrix(i == 1 ? DType::kBF16 : DType::kF32, {outs[i]},
                                 random_integers(random, outs[i])));
    all_w.insert(all_w.end(), matrices.back().values.begin(), matrices.back().values.end());
    all_b.insert(all_b.end(), biases.back().values.begin(), biases.back().values.end());
  }
  for (const Matrix& m : matrices) parts.push_back(m.tensor);
  for (const Matrix& m : biases) bias_parts.push_back(m.tensor);
  const auto weight = backend_->make_linear(parts, bias_parts);
  ASSERT_EQ(weight->out_features(), 83);
  const std::vector<float> x = random_integers(random, 9 * in);
  for (const int64_t rows : {1, 9}) {
    expect_near_oracle(run_linear(*backend_, *weight, x, rows), x, all_w, all_b, rows, 83, in, 0);
  }
}

TEST_P(Linear, EmbedsFromThePackedTable) {
  std::mt19937 random(6);
  constexpr int64_t kVocab = 35;
  const auto hidden = static_cast<int32_t>(whole_blocks(50, GetParam().weights));
  const auto width = static_cast<size_t>(hidden);
  const Matrix table = make_weights(GetParam().weights, {kVocab, hidden}, random, false);
  const auto weight = backend_->make_linear({&table.tensor, 1}, {});
  const std::vector<int32_t> ids = {0, 34, 16, -2, 15};
  const std::vector<int32_t> previous = {3, 33};  // -2 is the step before's second token
  std::vector<float> out(ids.size() * width + 1, -7.0f);
  const auto stream = backend_->create_stream(false);
  backend_->embed({DType::kF32, weight.get(), ids.data(), previous.data(), 5, hidden, out.data()},
                  *stream);
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto id = static_cast<size_t>(ids[t] < 0 ? previous[1] : ids[t]);
    for (size_t i = 0; i < width; ++i) EXPECT_EQ(out[t * width + i], table.values[id * width + i]);
  }
  EXPECT_EQ(out.back(), -7.0f);
  const int32_t beyond = kVocab;
  EXPECT_THROW(backend_->embed({DType::kF32, weight.get(), &beyond, nullptr, 1, hidden, out.data()},
                               *stream),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Linear, testing::ValuesIn(all_cases()), [](const auto& param) {
  return param.param.isa + "_" + to_string(param.param.weights) + "_weights_" +
         to_string(param.param.compute);
});

std::string error_of(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& bias) {
  const auto backend = make_backend("scalar");
  try {
    backend->make_linear(parts, bias);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LinearErrors, NameTheTensorAndBothShapes) {
  const std::vector<float> zeros(64);
  const auto* data = reinterpret_cast<const std::byte*>(zeros.data());
  const HostTensor a{"layer.q", DType::kF32, {4, 8}, data};
  const HostTensor b{"layer.k", DType::kF32, {4, 9}, data};
  const HostTensor flat{"layer.v", DType::kF32, {32}, data};
  const HostTensor bytes{"layer.i", DType::kI8, {4, 8}, data};
  const HostTensor bias{"layer.bias", DType::kF32, {5}, data};
  EXPECT_EQ(error_of({a, b}, {}), "tensor 'layer.k': shape [4, 9], expected [out, 8]");
  EXPECT_EQ(error_of({flat}, {}), "tensor 'layer.v': shape [32], expected [out, in]");
  EXPECT_EQ(error_of({a}, {bias}), "tensor 'layer.bias': shape [5], expected [4]");
  EXPECT_EQ(error_of({a, a}, {bias}), "tensor 'layer.q': 1 biases for 2 weights");
  EXPECT_EQ(error_of({bytes}, {}), "tensor 'layer.i': a CPU cannot multiply by weights of type i8");
}

TEST(CpuIsa, UnknownAndMissingOnesAreErrors) {
  BackendOptions options;
  options.isa = "sse9";
  EXPECT_THROW(cpu::CpuBackend{options}, Error);
  cpu::CpuFeatures none;
  EXPECT_THROW(cpu::choose_isa("avx2", none), Error);
  EXPECT_EQ(cpu::choose_isa("scalar", none), cpu::Isa::kScalar);
  EXPECT_EQ(cpu::best_isa(none), cpu::Isa::kScalar);
}

}  // namespace
}  // namespace zipage
