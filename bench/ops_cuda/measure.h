// Timing on the device: ops captured in a graph, replayed, the median replay divided by the ops in
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_stream.h"

namespace zipage::bench {

class Bench {
 public:
  Bench() {
    BackendOptions options;
    options.dtype = DType::kBF16;
    backend = std::make_unique<CudaBackend>(options);
    stream = backend->create_stream(false);
    ZIPAGE_CUDA_CHECK(cudaEventCreate(&begin_));
    ZIPAGE_CUDA_CHECK(cudaEventCreate(&end_));
    // A pool of random bf16, normal-ish and never 0 everywhere, to fill buffers from.
    noise_.resize(kNoise);
    uint64_t state = 88172645463325252u;
    for (uint16_t& bits : noise_) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      float sum = 0;
      for (int i = 0; i < 4; ++i)
        sum += static_cast<float>((state >> (16 * i)) & 0xffff) / 65536.0f - 0.5f;
      bits = f32_to_bf16(sum * 1.7f);
    }
    noise_device_ = backend->allocate(kNoise * 2, MemorySpace::kDevice);
    backend->copy(noise_device_.data(), noise_.data(), kNoise * 2, *stream);
    backend->synchronize(*stream);
  }
  ~Bench() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::unique_ptr<CudaBackend> backend;
  std::unique_ptr<Stream> stream;
  double copy_bytes_per_us = 0;  // the ceiling, read plus written
  double flops_per_us = 0;       // of a large bf16 product

  CudaStream& cuda() { return cuda_stream(*stream); }

  // A buffer of random bf16, starting at `offset` of the pool; host_noise(i) is element i of it.
  Buffer random(size_t elements, size_t offset = 0) {
    Buffer buffer = backend->allocate(elements * 2, MemorySpace::kDevice);
    size_t done = 0;
    while (done < elements) {
      const size_t from = (offset + done) % kNoise;
      const size_t part = std::min(elements - done, kNoise - from);
      backend->copy(buffer.data() + done * 2, noise_device_.data() + from * 2, part * 2, *stream);
      done += part;
    }
    return buffer;
  }
  float noise(size_t index) const { return bf16_to_f32(noise_[index % kNoise]); }
  const std::vector<uint16_t>& noise_bits() const { return noise_; }
  Buffer zeros(size_t bytes) {
    Buffer buffer = backend->allocate(bytes, MemorySpace::kDevice);
    backend->fill_zero(buffer.data(), bytes, *stream);
    return buffer;
  }
  template <typename T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = backend->allocate(values.size() * sizeof(T), MemorySpace::kDevice);
    backend->copy(buffer.data(), values.data(), buffer.bytes(), *stream);
    backend->synchronize(*stream);
    return buffer;
  }
  template <typename T>
  std::vector<T> download(const void* data, size_t count) {
    std::vector<T> host(count);
    backend->copy(host.data(), data, count * sizeof(T), *stream);
    backend->synchronize(*stream);
    return host;
  }

  // Microseconds of one op. `op(i)` enqueues the i-th; it should rotate among operands larger than
  // the L2 together.
  double time_us(int ops, const std::function<void(int)>& op) {
    op(0);  // lazy set-up, outside the capture
    backend->synchronize(*stream);
    backend->begin_capture(*stream);
    for (int i = 0; i < ops; ++i) op(i);
    const auto graph = backend->end_capture(*stream);
    for (int warm = 0; warm < 5; ++warm) graph->launch(*stream);
    std::vector<double> times;
    for (int repeat = 0; repeat < 7; ++repeat) {
      ZIPAGE_CUDA_CHECK(cudaEventRecord(begin_, cuda().handle()));
      graph->launch(*stream);
      ZIPAGE_CUDA_CHECK(cudaEventRecord(end_, cuda().handle()));
      ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end_));
      float ms = 0;
      ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
      times.push_back(1000.0 * static_cast<double>(ms) / ops);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void print_bytes(const char* name, double us, double bytes) const {
    std::printf("%-58s %9.2f us %8.1f GB/s %6.1f %% of copy\n", name, us, bytes / us / 1000,
                100 * bytes / us / copy_bytes_per_us);
    std::fflush(stdout);
  }
  void print_flops(const char* name, double us, double flops) const {
    std::printf("%-58s %9.2f us %8.1f TFLOP/s %6.1f %% of matmul\n", name, us, flops / us / 1e6,
                100 * flops / us / flops_per_us);
    std::fflush(stdout);
  }

 private:
  static constexpr size_t kNoise = (size_t{32} << 20) - 37;  // odd, so that rows differ
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::vector<uint16_t> noise_;
  Buffer noise_device_;
};

// The copy that is the ceiling: 16 bytes a thread, streaming.
void launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

// A weight of random numbers, from element `offset` of the pool on.
std::unique_ptr<LinearWeight> random_weight(Bench& bench, int64_t out, int64_t in, size_t offset);

void bench_linear(Bench& bench);
void bench_layer(Bench& bench);
void bench_attention(Bench& bench);
void bench_elementwise(Bench& bench);

}  // namespace zipage::bench
