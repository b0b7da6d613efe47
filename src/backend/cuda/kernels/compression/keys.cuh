// How compression kernels read keys: eight elements at a time in any KV dtype, or 32 entries at a time into shared memory.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/compression/units.cuh"

namespace zipage::compression {

inline constexpr float kMinNorm = 1e-6f;  // unit() divides by max(norm, 1e-6) (method.md 3.2)

// 1 / |k| of a key whose squared norm is `squares`.
__device__ inline float inverse_norm(float squares) {
  return 1.0f / fmaxf(sqrtf(squares), kMinNorm);
}

__device__ inline void unpack2(__nv_bfloat162 pair, float* x) {
  const float2 f = __bfloat1622float2(pair);
  x[0] = f.x;
  x[1] = f.y;
}
__device__ inline void unpack2(__half2 pair, float* x) {
  const float2 f = __half22float2(pair);
  x[0] = f.x;
  x[1] = f.y;
}

template <typename Pair>
__device__ inline void unpack8(const uint4& raw, float* x) {
  const Pair* pairs = reinterpret_cast<const Pair*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) unpack2(pairs[i], x + 2 * i);
}

// Elements as they lie in memory: eight of them, still packed.
template <typename T>
struct Packed8;
template <>
struct Packed8<__nv_bfloat16> {
  uint4 raw;
  __device__ void load(const __nv_bfloat16* p) { raw = __ldg(reinterpret_cast<const uint4*>(p)); }
  __device__ void unpack(float* x) const { unpack8<__nv_bfloat162>(raw, x); }
};
template <>
struct Packed8<__half> {
  uint4 raw;
  __device__ void load(const __half* p) { raw = __ldg(reinterpret_cast<const uint4*>(p)); }
  __device__ void unpack(float* x) const { unpack8<__half2>(raw, x); }
};
template <>
struct Packed8<float> {
  float4 low, high;
  __device__ void load(const float* p) {
    low = __ldg(reinterpret_cast<const float4*>(p));
    high = __ldg(reinterpret_cast<const float4*>(p) + 1);
  }
  __device__ void unpack(float* x) const {
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  }
};

// Four elements of a run-time dtype as f32.
__device__ inline float4 load4(const std::byte* base, DType dtype, int64_t element) {
  if (dtype == DType::kF32) return __ldg(reinterpret_cast<const float4*>(base) + element / 4);
  const uint2 raw = __ldg(reinterpret_cast<const uint2*>(base) + element / 4);
  float x[4];
  if (dtype == DType::kBF16) {
    unpack2(reinterpret_cast<const __nv_bfloat162&>(raw.x), x);
    unpack2(reinterpret_cast<const __nv_bfloat162&>(raw.y), x + 2);
  } else {
    unpack2(reinterpret_cast<const __half2&>(raw.x), x);
    unpack2(reinterpret_cast<const __half2&>(raw.y), x + 2);
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

// 32 entries from `first` on into rows of `stride` elements, by one warp, asynchronously; zeros
// where an entry is not below `length`. T has 2 bytes; parts = head_dim / 8.
template <typename T>
__device__ inline void load_keys_async(const Launch& launch,
                                       const int32_t* table,
                                       int32_t head,
                                       const T* keys,
                                       int first,
                                       int length,
                                       int parts,
                                       T* to,
                                       int stride) {
  const int lane = threadIdx.x % 32;
  const int64_t mine = first + lane < length ? entry_offset(launch, table, head, first + lane) : 0;
  int key = 0, part = lane;
  while (part >= parts) part -= parts, ++key;
  // Every lane runs the same number of rounds: the offsets come by shuffles.
  for (int i = 0; i < 32 * parts; i += 32) {
    const int64_t offset = __shfl_sync(0xffffffffu, mine, key);
    cp_async_16_or_zero(shared_address(to + key * stride + part * 8), keys + offset + part * 8,
                        first + key < length);
    part += 32;
    while (part >= parts) part -= parts, ++key;
  }
}

}  // namespace zipage::compression
