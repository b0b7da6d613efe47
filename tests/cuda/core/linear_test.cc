#include "backend/cuda/cuda_linear.h"
#include "cuda/core/device.h"
#include "tensor/dequantize.h"

namespace zipage::test {
namespace {

struct LinearCase {
  int64_t out, in;
  int32_t tokens;
};

struct Operands {
  std::vector<double> w, x, bias;
  std::unique_ptr<LinearWeight> weight;
  Buffer x_device;
};

Operands make_operands(Device& device, DType dtype, const LinearCase& c, bool bias, uint64_t seed) {
  Random random(seed);
  Operands o;
  o.w = rounded(random.normal(static_cast<size_t>(c.out * c.in), 0.05), dtype);
  o.x = rounded(random.normal(static_cast<size_t>(c.tokens * c.in)), dtype);
  o.bias = bias ? rounded(random.normal(static_cast<size_t>(c.out)), DType::kBF16)
                : std::vector<double>(static_cast<size_t>(c.out), 0.0);
  // Two parts, as q and k are stacked.
  const int64_t first = c.out / 3;
  const auto bytes = encode(o.w, dtype);
  const auto bias_bytes = encode(o.bias, DType::kBF16);
  std::vector<HostTensor> parts(2), biases(2);
  for (int i = 0; i < 2; ++i) {
    const int64_t begin = i == 0 ? 0 : first;
    const int64_t rows = i == 0 ? first : c.out - first;
    parts[static_cast<size_t>(i)] = {
        "w", dtype, {rows, c.in}, bytes.data() + dtype_bytes(dtype, begin * c.in)};
    biases[static_cast<size_t>(i)] = {"b", DType::kBF16, {rows}, bias_bytes.data() + 2 * begin};
  }
  if (bias) {
    o.weight = device.backend->make_linear(parts, biases);
  } else {
    o.weight = device.backend->make_linear(parts, {});
  }
  o.x_device = device.upload(o.x, dtype);
  return o;
}

// All outputs are written; of large products a sample is compared. Each is the sum rounded once.
// `sum_may_be_rounded`: where there is a bias, possibly after the sum was rounded itself.
void check_output(Device& device,
                  const Operands& o,
                  const LinearCase& c,
                  DType dtype,
                  DType out_dtype,
                  const Buffer& out,
                  const std::string& what,
                  bool sum_may_be_rounded = false) {
  const auto got = device.download(out, out_dtype, static_cast<size_t>(c.out * c.tokens));
  for (const double value : got) ASSERT_FALSE(std::isnan(value)) << what;
  const int64_t outputs = c.out * c.tokens;
  const int64_t stride = outputs * c.in > 50'000'000 ? outputs * c.in / 50'000'000 * 2 + 1 : 1;
  std::vector<double> sample_got, sample_want, half_ulps;  // the last of sums without bias
  for (int64_t i = 0; i < outputs; i += stride) {
    const int64_t token = i / c.out;
    const int64_t row = i % c.out;
    double sum = 0;
    for (int64_t k = 0; k < c.in; ++k) {
      sum += o.w[static_cast<size_t>(row * c.in + k)] * o.x[static_cast<size_t>(token * c.in + k)];
    }
    sample_got.push_back(got[static_cast<size_t>(i)]);
    sample_want.push_back(sum + o.bias[static_cast<size_t>(row)]);
    if (sum_may_be_rounded) half_ulps.push_back(half_ulp(out_dtype) * std::abs(sum));
  }
  // Size of an output: sqrt(in) * 0.05. f32 sums of in terms: error about sqrt(in) * 2^-24 of that.
  const double size = std::sqrt(static_cast<double>(c.in)) * 0.05;
  const double relative = half_ulp(out_dtype) * 1.1 + (dtype == DType::kF32 ? 3e-6 : 2e-5);
  expect_near(sample_got, sample_want, relative, size, what, half_ulps);
}

std::string name(const LinearCase& c) {
  return std::to_string(c.out) + "x" + std::to_string(c.in) + " tokens " + std::to_string(c.tokens);
}

TEST(Linear, F32) {
  Device device(DType::kF32);
  for (const LinearCase& c :
       {LinearCase{64, 32, 1}, {200, 100, 3}, {1000, 520, 33}, {77, 1030, 65}}) {
    const Operands o = make_operands(device, DType::kF32, c, true, 5);
    Buffer out = device.poisoned(static_cast<size_t>(4 * c.out * c.tokens));
    device.backend->linear(
        {DType::kF32, DType::kF32, o.weight.get(), o.x_device.data(), c.tokens, out.data()},
        *device.stream);
    check_output(device, o, c, DType::kF32, DType::kF32, out, name(c));
  }
}

TEST(Linear, F32RowDoesNotDependOnTheBatch) {
  Device device(DType::kF32);
  const LinearCase c{300, 700, 40};
  const Operands o = make_operands(device, DType::kF32, c, false, 6);
  Buffer all = device.poisoned(static_cast<size_t>(4 * c.out * c.tokens));
  device.backend->linear(
      {DType::kF32, DType::kF32, o.weight.get(), o.x_device.data(), c.tokens, all.data()},
      *device.stream);
  const auto together = device.download(all.data(), all.bytes());
  for (const int32_t token : {0, 17, 39}) {
    Buffer alone = device.poisoned(static_cast<size_t>(4 * c.out));
    device.backend->linear(
        {DType::kF32, DType::kF32, o.weight.get(),
         o.x_device.data() + static_cast<size_t>(token * c.in * 4), 1, alone.data()},
        *device.stream);
    const auto bytes = device.download(alone.data(), alone.bytes());
    EXPECT_EQ(std::memcmp(bytes.data(), together.data() + static_cast<size_t>(token) * bytes.size(),
                          bytes.size()),
              0);
  }
}

std::vector<LinearCase> bf16_cases() {
  std::vector<LinearCase> cases;
  for (const int32_t tokens :
       {1, 2, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 157, 160, 161, 192, 193, 300}) {
    cases.push_back({1000, 1032, tokens});
  }
  for (const int32_t tokens : {1, 2, 4, 20, 70, 157}) {
    cases.push_back({24, 64, tokens});
    cases.push_back({5, 12288, tokens});
    cases.push_back({3001, 5128, tokens});
    cases.push_back({256, 4096, tokens});
    cases.push_back({2048, 136, tokens});
    cases.push_back({3072, 2048, tokens});
  }
  return cases;
}

// Calls body(case, has a bias, type of the output, operands).
template <typename Body>
void for_each_bf16_case(Device& device, Body body) {
  for (const LinearCase& c : bf16_cases()) {
    for (const DType out_dtype : {DType::kBF16, DType::kF32}) {
      const bool bias = c.tokens % 2 == 1;
      body(c, bias, out_dtype,
           make_operands(device, DType::kBF16, c, bias, 7 + static_cast<uint64_t>(c.tokens)));
    }
  }
}

// Weights of a GGUF file are multiplied as what they mean, rounded to the model's type.
TEST(Linear, PackedWeights) {
  constexpr int64_t kOut = 80, kIn = 512;
  constexpr int32_t kTokens = 3;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Device device(dtype);
    Random random(9);
    const Buffer x = device.upload(rounded(random.normal(kTokens * kIn), dtype), dtype);
    for (const DType type :
         {DType::kQ8_0, DType::kQ4_1, DType::kQ5_0, DType::kQ4_K, DType::kQ6_K}) {
      std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(type, kOut * kIn)));
      for (size_t i = 0; i < bytes.size(); ++i)  // small finite numbers in every type
        bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13 & 0x3f);
      const HostTensor packed{"w", type, {kOut, kIn}, bytes.data()};
      std::vector<float> values(kOut * kIn);
      dequantize(packed, values);
      const HostTensor plain{
          "w", DType::kF32, {kOut, kIn}, reinterpret_cast<const std::byte*>(values.data())};
      std::vector<std::byte> results[2];
      for (const HostTensor* tensor : {&packed, &plain}) {
        const auto weight = device.backend->make_linear({tensor, 1}, {});
        Buffer out = device.poisoned(4 * kOut * kTokens);
        device.backend->linear({dtype, DType::kF32, weight.get(), x.data(), kTokens, out.data()},
                               *device.stream);
        results[tensor == &packed] = device.download(out.data(), out.bytes());
      }
      EXPECT_EQ(results[0], results[1]) << to_string(type);
    }
  }
}

// Twice each: the second run finds what the first left in the workspace.
TEST(Linear, Bf16) {
  Device device(DType::kBF16);
  for_each_bf16_case(device, [&](const LinearCase& c, bool bias, DType out_dtype,
                                 const Operands& o) {
    // cuda_linear.cc, Product: no model has such rows.
    const bool cublas_rounds_sum = bias && out_dtype == DType::kBF16 && c.out % 8 != 0;
    const LinearArgs args{DType::kBF16, out_dtype, o.weight.get(), o.x_device.data(), c.tokens, {}};
    const auto bytes = static_cast<size_t>(dtype_bytes(out_dtype, c.out * c.tokens));
    for (const std::string kernel : {"chosen", "chosen again", "cuBLASLt"}) {
      Buffer out = device.poisoned(bytes);
      LinearArgs to_out = args;
      to_out.out = out.data();
      if (kernel == "cuBLASLt") {
        auto& stream = static_cast<CudaStream&>(*device.stream);
        device.backend->linear_kernels().run_cublas(to_out, stream);
      } else {
        device.backend->linear(to_out, *device.stream);
      }
      check_output(device, o, c, DType::kBF16, out_dtype, out, name(c) + " " + kernel,
                   cublas_rounds_sum);
    }
  });
}

TEST(Linear, OwnKernels) {
  Device device(DType::kBF16);
  auto& stream = static_cast<CudaStream&>(*device.stream);
  CudaLinear& linear = device.backend->linear_kernels();
  int count[2] = {};
  for_each_bf16_case(device, [&](const LinearCase& c, bool, DType out_dtype, const Operands& o) {
    const auto bytes = static_cast<size_t>(dtype_bytes(out_dtype, c.out * c.tokens));
    for (int run = 0; run < 4; ++run) {
      Buffer out = device.poisoned(bytes);
      const LinearArgs args{DType::kBF16,      out_dtype, o.weight.get(),
                            o.x_device.data(), c.tokens,  out.data()};
      const bool gemv = run % 2 == 0;
      if (!(gemv ? linear.run_gemv(args, stream) : linear.run_stream(args, stream))) continue;
      check_output(device, o, c, DType::kBF16, out_dtype, out,
                   name(c) + (gemv ? " gemv" : " stream"));
      ++count[run % 2];
    }
  });
  RecordProperty("gemv", count[0]);
  RecordProperty("stream", count[1]);
}

}  // namespace
}  // namespace zipage::test
