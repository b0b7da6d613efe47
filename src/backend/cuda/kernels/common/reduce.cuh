// Reductions and scans over lanes, warps and blocks. The order is fixed by the number of lanes alone, so that a sum does
// not depend on timing.
//
//   __shared__ BlockReduceShared shared;
//   const float total = block_sum(mine, shared);  // the same value in every thread
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/ptx.cuh"

namespace zipage {

inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
  static constexpr float kIdentity = 0.0f;
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  static constexpr float kIdentity = -INFINITY;
};

// Over the lanes whose numbers differ in the bits kFirst to kLast only (powers of two), every one gets the result.
// <1, 2>: the four lanes that share a row of an mma accumulator. <4, 16>: the eight that share a column. Ascending steps.
template <int kFirst, int kLast, typename Op, typename T>
__device__ inline T reduce_lanes(T x, Op op) {
#pragma unroll
  for (int step = kFirst; step <= kLast; step *= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
template <typename T>
__device__ inline T row_sum(T x) {
  return reduce_lanes<1, 2>(x, Sum());
}
__device__ inline float row_max(float x) { return reduce_lanes<1, 2>(x, Max()); }
__device__ inline float column_sum(float x) { return reduce_lanes<4, 16>(x, Sum()); }
__device__ inline float column_max(float x) { return reduce_lanes<4, 16>(x, Max()); }

// Over a warp, every lane gets the result. Descending steps.
template <typename Op, typename T>
__device__ inline T warp_reduce(T x, Op op) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
template <typename T>
__device__ inline T warp_sum(T x) {
  return warp_reduce(x, Sum());
}
__device__ inline float warp_max(float x) { return warp_reduce(x, Max()); }

// The sum over this lane and the lanes before it.
template <typename T>
__device__ inline T warp_inclusive_sum(T x) {
  const int lane = lane_id();
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, x, step);
    if (lane >= step) x += before;
  }
  return x;
}

// What a block needs for block_reduce: a value a warp, and the result.
struct BlockReduceShared {
  float warps[32];
  float result;
};

// Over all threads of the block (whole warps), every one gets the result. May be called again with the same `shared`.
template <typename Op>
__device__ inline float block_reduce(float x, BlockReduceShared& shared, Op op) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = lane_id();
  const int num_warps = (static_cast<int>(blockDim.x) + 31) / 32;
  x = warp_reduce(x, op);
  __syncthreads();  // the result of the call before has been read
  if (lane == 0) shared.warps[warp] = x;
  __syncthreads();
  if (warp == 0) {
    const float y = warp_reduce(lane < num_warps ? shared.warps[lane] : Op::kIdentity, op);
    if (lane == 0) shared.result = y;
  }
  __syncthreads();
  return shared.result;
}
__device__ inline float block_sum(float x, BlockReduceShared& shared) {
  return block_reduce(x, shared, Sum());
}
__device__ inline float block_max(float x, BlockReduceShared& shared) {
  return block_reduce(x, shared, Max());
}

}  // namespace zipage
