// Products of Qwen3-8B at the numbers of tokens of decode steps: own kernel and cuBLASLt against
// the weights' bytes.
#include <cmath>
#include <string>

#include "backend/cuda/cuda_linear.h"
#include "measure.h"

namespace zipage::bench {
namespace {

struct Shape {
  const char* name;
  int64_t out, in;
  bool logits;
};

constexpr Shape kShapes[] = {{"qkv", 6144, 4096, false},
                             {"o", 4096, 4096, false},
                             {"gate_up", 24576, 4096, false},
                             {"down", 4096, 12288, false},
                             {"lm_head", 151936, 4096, true}};

double value_at(const std::vector<std::byte>& bytes, DType dtype, size_t i) {
  if (dtype == DType::kF32)
    return static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
  return static_cast<double>(bf16_to_f32(reinterpret_cast<const uint16_t*>(bytes.data())[i]));
}

// Largest error of a sample of outputs against double sums, in units of the outputs' size.
double sample_error(Bench& bench,
                    const Shape& shape,
                    size_t w_offset,
                    size_t x_offset,
                    int32_t tokens,
                    const std::vector<std::byte>& out,
                    DType out_dtype) {
  double worst = 0;
  const size_t outputs = static_cast<size_t>(shape.out) * static_cast<size_t>(tokens);
  const double size = std::sqrt(static_cast<double>(shape.in)) * 0.96;  // noise has variance 0.96
  for (size_t n = 0; n < 2000; ++n) {
    const size_t i = (n * 7919 * 104729 + n) % outputs;
    const size_t token = i / static_cast<size_t>(shape.out);
    const size_t row = i % static_cast<size_t>(shape.out);
    double sum = 0;
    for (size_t k = 0; k < static_cast<size_t>(shape.in); ++k) {
      sum += static_cast<double>(bench.noise(w_offset + row * static_cast<size_t>(shape.in) + k)) *
             static_cast<double>(bench.noise(x_offset + token * static_cast<size_t>(shape.in) + k));
    }
    const double error =
        std::abs(value_at(out, out_dtype, i) - sum) / std::max(size, std::abs(sum));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace

std::unique_ptr<LinearWeight> random_weight(Bench& bench, int64_t out, int64_t in, size_t offset) {
  // The layout is row-major, so the device's pool of noise can fill it: no upload of gigabytes.
  auto weight =
      std::make_unique<CudaLinearWeight>(bench.backend->context().device, DType::kBF16, out, in);
  const Buffer values = bench.random(static_cast<size_t>(out * in), offset);
  bench.backend->copy(weight->data(), values.data(), values.bytes(), *bench.stream);
  bench.backend->synchronize(*bench.stream);
  return weight;
}

void bench_linear(Bench& bench) {
  constexpr int32_t counts[] = {1, 2, 4, 8, 32, 64, 96, 128, 157, 168, 192};
  double own_layer[std::size(counts)] = {};
  double cublas_layer[std::size(counts)] = {};
  double chosen_layer[std::size(counts)] = {};
  CudaLinear& linear = bench.backend->linear_kernels();
  for (const Shape& shape : kShapes) {
    const double bytes = 2.0 * static_cast<double>(shape.out * shape.in);
    const int copies = std::max(1, static_cast<int>(std::ceil(240e6 / bytes)));
    std::vector<std::unique_ptr<LinearWeight>> weights;
    for (int i = 0; i < copies; ++i)
      weights.push_back(random_weight(bench, shape.out, shape.in, static_cast<size_t>(i) * 1001));
    const DType out_dtype = shape.logits ? DType::kF32 : DType::kBF16;
    constexpr size_t kXOffset = 5555555;
    const Buffer x = bench.random(static_cast<size_t>(192 * shape.in), kXOffset);
    Buffer out = bench.zeros(static_cast<size_t>(192 * shape.out * 4));
    for (size_t c = 0; c < std::size(counts); ++c) {
      const int32_t tokens = counts[c];
      const auto args = [&](int i) {
        return LinearArgs{DType::kBF16, out_dtype, weights[static_cast<size_t>(i % copies)].get(),
                          x.data(),     tokens,    out.data()};
      };
      const int ops = shape.logits ? 4 : 4 * copies;
      const size_t out_bytes = static_cast<size_t>(dtype_bytes(out_dtype, shape.out * tokens));
      bench.backend->fill_zero(out.data(), out.bytes(), *bench.stream);
      const double best =
          bench.time_us(ops, [&](int i) { linear.run_stream(args(i), bench.cuda()); });
      linear.run_stream(args(0), bench.cuda());
      const double error =
          sample_error(bench, shape, 0, kXOffset, tokens,
                       bench.download<std::byte>(out.data(), out_bytes), out_dtype);
      char name[128];
      std::snprintf(name, sizeof name, "%-8s T %3d own (error %.1e%s)", shape.name, tokens, error,
                    error < 8e-3 ? "" : " WRONG");
      bench.print_bytes(name, best, bytes);
      if (tokens <= kMaxGemvTokens) {
        bench.backend->fill_zero(out.data(), out.bytes(), *bench.stream);
        const double gemv_us =
            bench.time_us(ops, [&](int i) { linear.run_gemv(args(i), bench.cuda()); });
        linear.run_gemv(args(0), bench.cuda());
        const double gemv_error =
            sample_error(bench, shape, 0, kXOffset, tokens,
                         bench.download<std::byte>(out.data(), out_bytes), out_dtype);
        std::snprintf(name, sizeof name, "%-8s T %3d own, row by row (error %.1e%s)", shape.name,
                      tokens, gemv_error, gemv_error < 8e-3 ? "" : " WRONG");
        bench.print_bytes(name, gemv_us, bytes);
      }
      const double cublas_us =
          bench.time_us(ops, [&](int i) { linear.run_cublas(args(i), bench.cuda()); });
      std::snprintf(name, sizeof name, "%-8s T %3d cuBLASLt", shape.name, tokens);
      bench.print_bytes(name, cublas_us, bytes);
      const double chosen_us =
          bench.time_us(ops, [&](int i) { linear.run(args(i), bench.cuda()); });
      std::snprintf(name, sizeof name, "%-8s T %3d as chosen", shape.name, tokens);
      bench.print_bytes(name, chosen_us, bytes);
      if (!shape.logits) {
        own_layer[c] += best;
        chosen_layer[c] += chosen_us;
        cublas_layer[c] += cublas_us;
      }
    }
  }
  for (size_t c = 0; c < std::size(counts); ++c) {
    std::printf("36 layers, T %3d: own %.2f ms, cuBLASLt %.2f ms, as chosen %.2f ms\n", counts[c],
                36 * own_layer[c] / 1000, 36 * cublas_layer[c] / 1000, 36 * chosen_layer[c] / 1000);
  }
}

}  // namespace zipage::bench
