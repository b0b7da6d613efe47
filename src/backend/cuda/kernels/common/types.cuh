// Small device helpers shared by the kernels: conversions, 16-byte packs, reductions.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_context.h"
#include "tensor/dtype.h"

namespace zipage {

using bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// N elements moved by one access.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// 2^x to about 2 units in the last place; 0 for x = -inf.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Sum over the block, the same value in every thread; `shared` holds 33 floats. Fixed order.
__device__ inline float block_sum(float x, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int num_warps = (static_cast<int>(blockDim.x) + 31) / 32;
  x = warp_sum(x);
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float total = lane < num_warps ? shared[lane] : 0.0f;
    total = warp_sum(total);
    if (lane == 0) shared[32] = total;
  }
  __syncthreads();
  const float total = shared[32];
  __syncthreads();
  return total;
}

inline int32_t ceil_div(int64_t a, int64_t b) { return static_cast<int32_t>((a + b - 1) / b); }

// Calls f with a value of the C++ type of an activation dtype.
template <typename F>
void dispatch_activation(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(bf16{});
    default:
      kernel_lacks_dtype(op, "activations", dtype);
  }
}

// The same for the dtype of cached keys and values.
template <typename F>
void dispatch_kv(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(bf16{});
    case DType::kF16:
      return f(__half{});
    default:
      kernel_lacks_dtype(op, "a KV cache", dtype);
  }
}

}  // namespace zipage
