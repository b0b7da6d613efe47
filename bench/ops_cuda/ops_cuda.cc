// Kernels of the CUDA backend against the machine's own ceilings, measured first: a large copy and
// a large product. usage: bench_ops_cuda [peak] [elementwise] [attention] [linear] [layer]   (all
// when none is named)
#include <cstring>

#include "backend/cuda/cuda_linear.h"
#include "measure.h"

namespace zipage::bench {
namespace {

void measure_peaks(Bench& bench) {
  constexpr size_t kBytes = size_t{4} << 30;
  Buffer from = bench.random(kBytes / 2);
  Buffer to = bench.backend->allocate(kBytes, MemorySpace::kDevice);
  const double us = bench.time_us(
      4, [&](int) { launch_copy(to.data(), from.data(), kBytes, bench.cuda().handle()); });
  bench.copy_bytes_per_us = 2.0 * kBytes / us;
  std::printf("copy ceiling %.1f GB/s (read + written)\n", bench.copy_bytes_per_us / 1000);

  constexpr int64_t kSize = 8192;
  HostTensor tensor;
  tensor.name = "w";
  tensor.dtype = DType::kBF16;
  std::vector<uint16_t> w(static_cast<size_t>(kSize * kSize));
  for (size_t i = 0; i < w.size(); ++i) w[i] = bench.noise_bits()[i % bench.noise_bits().size()];
  tensor.shape = {kSize, kSize};
  tensor.data = reinterpret_cast<const std::byte*>(w.data());
  const auto weight = bench.backend->make_linear({&tensor, 1}, {});
  const LinearArgs args{
      DType::kBF16, DType::kBF16, weight.get(), from.data(), static_cast<int32_t>(kSize),
      to.data()};
  const double product_us = bench.time_us(
      8, [&](int) { bench.backend->linear_kernels().run_cublas(args, bench.cuda()); });
  bench.flops_per_us = 2.0 * kSize * kSize * kSize / product_us;
  std::printf("matmul ceiling %.1f TFLOP/s (bf16, 8192^3, cuBLASLt)\n", bench.flops_per_us / 1e6);
}

}  // namespace
}  // namespace zipage::bench

int main(int argc, char** argv) {
  const auto wanted = [&](const char* name) {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], name) == 0) return true;
    }
    return argc == 1;
  };
  try {
    zipage::bench::Bench bench;
    const zipage::DeviceInfo info = bench.backend->info();
    std::printf("%s, %.1f GiB\n", info.name.c_str(),
                static_cast<double>(info.total_bytes) / (1u << 30));
    zipage::bench::measure_peaks(bench);
    if (wanted("attention")) zipage::bench::bench_attention(bench);
    if (wanted("linear")) zipage::bench::bench_linear(bench);
    if (wanted("layer")) zipage::bench::bench_layer(bench);
    if (wanted("elementwise")) zipage::bench::bench_elementwise(bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_ops_cuda: %s\n", error.what());
    return 1;
  }
  return 0;
}
