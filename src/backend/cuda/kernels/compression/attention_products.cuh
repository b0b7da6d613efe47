// The products of attention_score.cu: rows of queries times a warp's keys, both in shared memory, by mma for 2-byte types C and
// in f32 arithmetic for float; and how a row comes to shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/compression/keys.cuh"

namespace zipage::compression {

template <typename C>
inline constexpr int kPad = 16 / static_cast<int>(sizeof(C));  // rows start 16 bytes apart

// acc[tile, n, :] = q rows times the warp's keys, in the layout of an m16n8 accumulator: element e
// is row 16 * tile + lane / 4 + 8 * (e / 2), key 8 * n + 2 * (lane % 4) + e % 2.
template <typename C, int kHeadTiles, int kTiles>
struct AttentionProducts {
  __device__ static void run(
      float (&acc)[kHeadTiles][kTiles][4], const C* q, const C* k, int head_dim, int tiles) {
    const int lane = threadIdx.x % 32;
    const int stride = head_dim + kPad<C>;
    const C* q_lane = q + (lane & 15) * stride + (lane >> 4) * 8;
    const C* k_lane = k + ((lane & 7) + ((lane >> 4) << 3)) * stride + ((lane >> 3) & 1) * 8;
#pragma unroll 1
    for (int depth = 0; depth < head_dim; depth += 16) {
      uint32_t b[(kTiles + 1) / 2][4];
#pragma unroll
      for (int i = 0; i < (kTiles + 1) / 2; ++i)
        load_matrices(b[i], shared_address(k_lane + i * 16 * stride + depth));
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        if (tile < tiles) {
          uint32_t a[4];
          load_matrices(a, shared_address(q_lane + tile * 16 * stride + depth));
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            mma<C>(acc[tile][n], a, b[n / 2][(n % 2) * 2], b[n / 2][(n % 2) * 2 + 1]);
          }
        }
      }
    }
  }
};

template <int kHeadTiles, int kTiles>
struct AttentionProducts<float, kHeadTiles, kTiles> {
  __device__ static void run(float (&acc)[kHeadTiles][kTiles][4],
                             const float* q,
                             const float* k,
                             int head_dim,
                             int tiles) {
    const int lane = threadIdx.x % 32;
    const int stride = head_dim + kPad<float>;
    const float* q_lane = q + (lane / 4) * stride;
    const float* k_lane = k + 2 * (lane % 4) * stride;
    for (int depth = 0; depth < head_dim; depth += 4) {
      float4 b[kTiles][2];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          b[n][c] = *reinterpret_cast<const float4*>(k_lane + (8 * n + c) * stride + depth);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        if (tile < tiles) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float4 a =
                *reinterpret_cast<const float4*>(q_lane + (16 * tile + 8 * half) * stride + depth);
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                float& sum = acc[tile][n][2 * half + c];
                sum = fmaf(a.x, b[n][c].x, sum);
                sum = fmaf(a.y, b[n][c].y, sum);
                sum = fmaf(a.z, b[n][c].z, sum);
                sum = fmaf(a.w, b[n][c].w, sum);
              }
            }
          }
        }
      }
    }
  }
};

template <typename C>
__device__ inline void load_row_part(
    C* to, const std::byte* base, DType, int64_t element, bool valid) {
  cp_async_16_or_zero(shared_address(to), base + element * static_cast<int64_t>(sizeof(C)), valid);
}
template <>
__device__ inline void load_row_part<float>(
    float* to, const std::byte* base, DType dtype, int64_t element, bool valid) {
  *reinterpret_cast<float4*>(to) = valid ? load4(base, dtype, element) : make_float4(0, 0, 0, 0);
}

}  // namespace zipage::compression
