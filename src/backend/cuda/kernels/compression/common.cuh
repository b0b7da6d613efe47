// What the kernels of compression share: where a unit (job, layer, KV head) lies, how a key is
// addressed, reductions in a fixed order, and a barrier among the blocks of one unit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/kernels/compression/limits.h"
#include "backend/kv_view.h"
#include "backend/ops/compression.h"

namespace zipage::compression {

inline constexpr int kMaxLayersPerLaunch = 48;  // layer pointers travel as kernel parameters (4 KB)
inline constexpr float kMinNorm = 1e-6f;        // unit() divides by max(norm, 1e-6) (method.md 3.2)

// n / divisor and n % divisor for 0 <= n < 2^31.
struct FastDiv {
  uint32_t divisor = 1;
  uint32_t magic = 0;
  uint32_t shift = 0;
  FastDiv() = default;
  explicit FastDiv(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    // ceil(2^(31 + shift) / d) < 2^32; divide() shifts by 31 + shift.
    magic = static_cast<uint32_t>(((uint64_t{1} << (31 + shift)) + d - 1) / d);
  }
  __device__ uint32_t divide(uint32_t n) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(n) * magic) >> (31 + shift));
  }
};

struct LayerPointers {
  const std::byte* k;
  const std::byte* v;
  const std::byte* queries;
  const float* k_scale;
  float* scores;
  int32_t* positions;
};

// One launch: `num_jobs` jobs from job_begin on and `num_layers` layers from row layer_offset of
// the scratch on.
struct Launch {
  LayerPointers layers[kMaxLayersPerLaunch];
  FastDiv block_size;
  FastDiv heads;       // KV heads
  FastDiv layers_div;  // num_layers
  int32_t job_begin = 0;
  int32_t num_jobs = 0;
  int32_t layer_offset = 0;
  int32_t num_layers = 0;
  int32_t model_layer = 0;     // of layers[0]
  int32_t scratch_layers = 0;  // layers of a row of score scratch
  int32_t capacity = 0;        // row length of score scratch
  int32_t num_q_heads = 0;
  int32_t head_dim = 0;
  int32_t window_size = 0;
  int32_t score_capacity = 0;
  DType dtype = DType::kF32;
  DType query_dtype = DType::kF32;

  int32_t num_heads() const { return static_cast<int32_t>(heads.divisor); }
  int32_t num_units() const { return num_jobs * num_layers * num_heads(); }
};

struct Unit {
  int32_t job;    // of the batch
  int32_t layer;  // of Launch::layers
  int32_t head;
  int64_t row;  // of score scratch [job, scratch layer, head]
};

__device__ inline Unit unit_of(const Launch& launch, uint32_t index) {
  const uint32_t job_layer = launch.heads.divide(index);
  const uint32_t job = launch.layers_div.divide(job_layer);
  Unit unit;
  unit.head = static_cast<int32_t>(index - job_layer * launch.heads.divisor);
  unit.layer = static_cast<int32_t>(job_layer - job * launch.layers_div.divisor);
  unit.job = launch.job_begin + static_cast<int32_t>(job);
  unit.row =
      (static_cast<int64_t>(unit.job) * launch.scratch_layers + launch.layer_offset + unit.layer) *
          launch.heads.divisor +
      unit.head;
  return unit;
}

// Element offset of entry `index` of a request in k or v.
__device__ inline int64_t entry_offset(const Launch& launch,
                                       const int32_t* table,
                                       int32_t head,
                                       int32_t index) {
  const uint32_t block = launch.block_size.divide(index);
  const int32_t offset = index - static_cast<int32_t>(block * launch.block_size.divisor);
  return ((static_cast<int64_t>(__ldg(table + block)) * launch.heads.divisor + head) *
              launch.block_size.divisor +
          offset) *
         launch.head_dim;
}

// F or positions of a slot's head: [num_slots, num_kv_heads, score_capacity].
__device__ inline int64_t history_offset(const Launch& launch, int32_t slot, int32_t head) {
  return (static_cast<int64_t>(slot) * launch.heads.divisor + head) * launch.score_capacity;
}

// True position of entry `index`.
__device__ inline int32_t position_of(const int32_t* positions,
                                      int32_t index,
                                      int32_t history,
                                      int32_t offset) {
  return positions != nullptr && index < history ? __ldg(positions + index) : index + offset;
}

// ---- loads -----------------------------------------------------------------------------------
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

// ---- reductions in a fixed order -------------------------------------------------------------
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Over all threads of the block; `shared` has room for 33 floats. All threads get the result.
template <bool kMax>
__device__ inline float block_reduce(float x, float* shared) {
  x = kMax ? warp_max(x) : warp_sum(x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float y = lane < warps ? shared[lane] : (kMax ? -INFINITY : 0.0f);
    y = kMax ? warp_max(y) : warp_sum(y);
    if (lane == 0) shared[32] = y;
  }
  __syncthreads();
  return shared[32];
}

// ---- blocks of one unit that wait for each other ---------------------------------------------
// Work is taken by ticket, so that a block that waits only waits for blocks that run already or
// will take one of the next tickets. All threads get the ticket.
__device__ inline uint32_t take_ticket(uint32_t* tickets, uint32_t* shared) {
  if (threadIdx.x == 0) *shared = atomicAdd(tickets, 1u);
  __syncthreads();
  return *shared;
}

// Says that this block is done with its part; what it wrote is visible to those that see the count.
__device__ inline void arrive(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}

// Waits until `expected` blocks have arrived; what they wrote is visible after (read it with
// __ldcg).
__device__ inline void wait_for(uint32_t* counter, uint32_t expected) {
  if (threadIdx.x == 0) {
    uint32_t arrived = 0;
    while (true) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
      if (arrived >= expected) break;
      __nanosleep(20);
    }
  }
  __syncthreads();
}

__device__ inline void unit_barrier(uint32_t* counter, uint32_t expected) {
  arrive(counter);
  wait_for(counter, expected);
}

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- asynchronous copies and tensor cores ----------------------------------------------------
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes; zeros where !valid.
__device__ inline void copy16_async(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ inline void load_matrices(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}
// c[16, 8] += a[16, 16] b[16, 8]
template <typename T>
__device__ inline void multiply_add(float (&c)[4],
                                    const uint32_t (&a)[4],
                                    uint32_t b0,
                                    uint32_t b1);
template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&c)[4],
                                                   const uint32_t (&a)[4],
                                                   uint32_t b0,
                                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<__half>(float (&c)[4],
                                            const uint32_t (&a)[4],
                                            uint32_t b0,
                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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
    copy16_async(to + key * stride + part * 8, keys + offset + part * 8, first + key < length);
    part += 32;
    while (part >= parts) part -= parts, ++key;
  }
}

// ---- host ------------------------------------------------------------------------------------
inline int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Fills all of a launch except the ranges.
inline Launch make_launch(const PagedKvView& kv, int32_t scratch_layers, int32_t capacity) {
  Launch launch{};
  launch.block_size = FastDiv(static_cast<uint32_t>(kv.block_size));
  launch.heads = FastDiv(static_cast<uint32_t>(kv.num_kv_heads));
  launch.scratch_layers = scratch_layers;
  launch.capacity = capacity;
  launch.num_q_heads = kv.num_q_heads;
  launch.head_dim = kv.head_dim;
  launch.window_size = kv.window_size;
  launch.score_capacity = kv.score_capacity;
  launch.dtype = kv.dtype;
  launch.query_dtype = kv.query_dtype;
  return launch;
}

// Calls run(launch) for ranges of jobs and layers whose units need at most kPartialBytes at
// `bytes_per_unit`.
template <typename Run>
void for_each_launch(const PagedKvView& kv,
                     int32_t num_jobs,
                     int32_t layer_begin,
                     int32_t num_layers,
                     int32_t capacity,
                     size_t bytes_per_unit,
                     Run&& run) {
  const size_t most_units =
      std::max<size_t>(kPartialBytes / std::max<size_t>(bytes_per_unit, 1), 1);
  const size_t job_layers = std::max<size_t>(most_units / static_cast<size_t>(kv.num_kv_heads), 1);
  const auto jobs_step =
      static_cast<int32_t>(std::min<size_t>(job_layers, static_cast<size_t>(num_jobs)));
  if (jobs_step == 0) return;
  const auto layers_step = static_cast<int32_t>(
      std::clamp<size_t>(job_layers / static_cast<size_t>(jobs_step), 1, kMaxLayersPerLaunch));
  Launch launch = make_launch(kv, num_layers, capacity);
  for (int32_t l = 0; l < num_layers; l += layers_step) {
    launch.layer_offset = l;
    launch.num_layers = std::min(layers_step, num_layers - l);
    launch.layers_div = FastDiv(static_cast<uint32_t>(launch.num_layers));
    launch.model_layer = layer_begin + l;
    for (int32_t i = 0; i < launch.num_layers; ++i) {
      const LayerKvView& layer = kv.layers[layer_begin + l + i];
      launch.layers[i] = {layer.k,       layer.v,      layer.queries,
                          layer.k_scale, layer.scores, layer.positions};
    }
    for (int32_t j = 0; j < num_jobs; j += jobs_step) {
      launch.job_begin = j;
      launch.num_jobs = std::min(jobs_step, num_jobs - j);
      run(static_cast<const Launch&>(launch));
    }
  }
}

// Blocks that may wait for each other without filling the device, even when two kernels do.
inline int max_waiting_blocks(const CudaContext& context) { return context.num_sms / 2; }

}  // namespace zipage::compression
