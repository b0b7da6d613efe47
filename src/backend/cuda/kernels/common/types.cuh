// Element types of the kernels: conversions to and from f32, packs that move by one access, and the choice of a kernel's
// template arguments by a run-time dtype.
//
//   dispatch_activation(args.dtype, "silu_mul", [&]<typename T>(T) { launch_silu<T, kVector<T>>(args, context, stream); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_context.h"
#include "base/integer.h"
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

// Stores N values in T by one access.
template <typename T, int N>
__device__ inline void store_pack(T* to, const float (&value)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack.value[j] = from_float<T>(value[j]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
// The same in a type known at run time: element `place` of `to`.
template <int N>
__device__ inline void store_pack(std::byte* to,
                                  DType dtype,
                                  int64_t place,
                                  const float (&value)[N]) {
  if (dtype == DType::kF32) {
    store_pack(reinterpret_cast<float*>(to) + place, value);
  } else if (dtype == DType::kBF16) {
    store_pack(reinterpret_cast<bf16*>(to) + place, value);
  } else {
    store_pack(reinterpret_cast<__half*>(to) + place, value);
  }
}

// How many parts of `size` cover `count`: tiles, thread blocks of a grid.
inline int32_t num_parts(int64_t count, int64_t size) {
  return static_cast<int32_t>(ceil_div(count, size));
}

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
