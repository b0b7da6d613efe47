#include <cuda_runtime.h>

#include "backend/cuda/cuda_check.h"

namespace zipage::bench {

namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kThreads) copy_kernel(uint4* to, const uint4* from) {
  const size_t begin = static_cast<size_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  uint4 value[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) value[i] = __ldcs(from + begin + i * kThreads);
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) __stcs(to + begin + i * kThreads, value[i]);
}

}  // namespace

// `bytes` is a multiple of 32 KB.
void launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream);
void launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(bytes / (16 * kThreads * kUnroll));
  copy_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<uint4*>(to),
                                               static_cast<const uint4*>(from));
  ZIPAGE_CUDA_CHECK_LAUNCH("copy");
}

}  // namespace zipage::bench
