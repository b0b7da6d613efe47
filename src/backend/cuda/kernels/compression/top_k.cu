// Exact top-k of each unit's scores (method.md 3.1.7).
//
// Idea: radix select, one thread block a unit: the k-th largest key is found digit by digit (four passes of 8 bits over keys in
// shared memory), then a scan writes the kept slots in ascending order, ties to the lower slot.
//
// Cost of one job of 2,048 scores, 36 layers x 8 KV heads: 2.4 MB, below 1 us at 4.27 TB/s; the passes of one block decide.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): 0.017 ms; 8 layers a launch: 0.046 ms in five launches.
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/units.cuh"

namespace zipage::compression {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;
constexpr int kSharedKeys = 8192;  // longer rows are read again from memory

// Order of the keys is the order of the scores; -0 equals 0, NaN equals -inf.
__device__ inline uint32_t key_of(float score) {
  if (isnan(score)) score = -INFINITY;
  if (score == 0.0f) score = 0.0f;
  const uint32_t bits = __float_as_uint(score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Params {
  Launch launch;
  const int32_t* lengths;
  const int32_t* keeps;
  const float* score;
  int32_t* kept;
  int32_t kept_stride;
};

__global__ void __launch_bounds__(kThreads) top_k_kernel(const __grid_constant__ Params params) {
  extern __shared__ uint32_t keys[];
  __shared__ uint32_t counts[kDigits];
  __shared__ uint32_t warp_totals[2][kWarps];
  __shared__ uint32_t found_digit, found_above;

  const Unit unit = unit_of(params.launch, blockIdx.x);
  const int length = params.lengths[unit.job];
  const int keep = min(params.keeps[unit.job], length);
  if (keep <= 0) return;
  const float* row = params.score + unit.row * params.launch.capacity;
  int32_t* kept = params.kept + unit.row * params.kept_stride;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool in_shared = length <= kSharedKeys;
  if (in_shared) {
    for (int i = threadIdx.x; i < length; i += kThreads) keys[i] = key_of(row[i]);
  }
  const auto key_at = [&](int i) { return in_shared ? keys[i] : key_of(row[i]); };

  uint32_t prefix = 0;     // digits of the k-th largest key found so far
  uint32_t wanted = keep;  // its rank among the keys that share them
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kDigits; i += kThreads) counts[i] = 0;
    __syncthreads();
    for (int base = 0; base < length; base += kThreads) {
      const int i = base + threadIdx.x;
      uint32_t key = 0;
      bool in = i < length;
      if (in) {
        key = key_at(i);
        in = shift == 24 || (key >> (shift + 8)) == prefix;
      }
      // Lanes with the same digit add once: scores of one row share most of their high bits.
      const uint32_t digit = in ? (key >> shift) & 0xffu : kDigits + 0u;
      const uint32_t peers = __match_any_sync(0xffffffffu, digit);
      if (in && lane == __ffs(static_cast<int>(peers)) - 1)
        atomicAdd(&counts[digit], __popc(peers));
    }
    __syncthreads();
    if (warp == 0) {
      // Lane 0 has the largest digits: 8 a lane.
      uint32_t mine = 0;
      const int top = kDigits - 1 - lane * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) mine += counts[top - i];
      uint32_t before = mine;
#pragma unroll
      for (int step = 1; step < 32; step <<= 1) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, before, step);
        if (lane >= step) before += other;
      }
      before -= mine;
      if (before < wanted && wanted <= before + mine) {
        uint32_t above = before;
        for (int i = 0; i < 8; ++i) {
          const uint32_t count = counts[top - i];
          if (wanted <= above + count) {
            found_digit = static_cast<uint32_t>(top - i);
            found_above = above;
            break;
          }
          above += count;
        }
      }
    }
    __syncthreads();
    prefix = (prefix << 8) | found_digit;
    wanted -= found_above;
  }
  // prefix is the k-th largest key; of the entries equal to it, the first `wanted` are kept.
  uint32_t greater_before = 0, equal_before = 0;
  for (int base = 0; base < length; base += kThreads) {
    const int i = base + threadIdx.x;
    const uint32_t key = i < length ? key_at(i) : 0;
    const bool greater = i < length && key > prefix;
    const bool equal = i < length && key == prefix;
    const uint32_t greater_lanes = __ballot_sync(0xffffffffu, greater);
    const uint32_t equal_lanes = __ballot_sync(0xffffffffu, equal);
    if (lane == 0) {
      warp_totals[0][warp] = __popc(greater_lanes);
      warp_totals[1][warp] = __popc(equal_lanes);
    }
    __syncthreads();
    uint32_t greater_rank = greater_before, equal_rank = equal_before;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t g = warp_totals[0][w], e = warp_totals[1][w];
      if (w < warp) greater_rank += g, equal_rank += e;
      greater_before += g;
      equal_before += e;
    }
    const uint32_t lower = (1u << lane) - 1;
    greater_rank += __popc(greater_lanes & lower);
    equal_rank += __popc(equal_lanes & lower);
    if (greater || (equal && equal_rank < wanted)) kept[greater_rank + min(equal_rank, wanted)] = i;
    __syncthreads();
  }
}

}  // namespace

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_top_k(const TopKArgs& args, const CudaContext&, cudaStream_t stream) {
  const CompressionBatch& batch = *args.batch;
  Params params{};
  params.lengths = batch.lengths;
  params.keeps = batch.keeps;
  params.score = args.score;
  params.kept = args.kept;
  params.kept_stride = args.kept_stride;
  const size_t shared_bytes =
      sizeof(uint32_t) * static_cast<size_t>(std::min(batch.max_length, kSharedKeys));
  for_each_launch(*args.kv, batch.num_jobs, args.layer_begin, args.num_layers, args.capacity, 1,
                  [&](const Launch& launch) {
                    params.launch = launch;
                    top_k_kernel<<<launch.num_units(), kThreads, shared_bytes, stream>>>(params);
                    ZIPAGE_CUDA_CHECK_LAUNCH("top-k");
                  });
}

}  // namespace zipage
