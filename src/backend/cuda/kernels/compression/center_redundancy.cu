// Centre redundancy (method.md 3.2): R = softmax(u_i . mean_j(u_j) / tau), u_i = unit(R(-pos_i)
// k_i). A block keeps the units of one chunk of keys in registers, so that K is read once: chunks
// add up their units, wait for each other's sums and take their dot products with the mean. A
// second kernel divides by the sum of the exponentials: another wait would cost more than its
// launch.
#include "backend/cuda/kernels/compression/common.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSteps = 4;  // keys a thread has a part of
constexpr int kMaxHeadDim = 256;
constexpr size_t kTicketBytes = 256;
constexpr float kLog2E = 1.4426950408889634f;

struct Params {
  Launch launch;
  CompressionBatch batch;
  float temperature;
  const float* rope_cos_sin;
  int32_t rotary_dim;
  float* out;
  float* sums;           // [unit, chunk, head_dim]
  float2* exponentials;  // [unit, chunk]: largest logit, sum of exponentials
  uint32_t* ticket;      // the last one taken; it begins with all bits set, as the sums
  FastDiv chunks;
  int32_t phases;  // 1: sums, 2: logits; 3: both, and blocks wait for the sums of others
};

// Sums travel between the blocks of a unit without a fence: whoever needs one reads until it is no
// longer what the launch began with, all bits set, which no sum is (a NaN of the hardware is
// 0x7fffffff).
constexpr int kUnpublishedByte = 0xff;
__device__ inline void publish(float* to, float sum) {
  asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(sum) : "memory");
}
__device__ inline float read_published(const float* from) {
  float sum;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(sum) : "l"(from) : "memory");
  return sum;
}
__device__ inline bool is_published(float sum) { return __float_as_uint(sum) != ~0u; }

// kLanes lanes share a key; each has two groups of 8 elements, in the rotary part those that one
// angle turns.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads, 2)
    center_kernel(const __grid_constant__ Params params) {
  constexpr int kStepKeys = 32 / kLanes;
  constexpr int kWarpKeys = kStepKeys * kSteps;
  constexpr int kKeys = kWarpKeys * kWarps;
  __shared__ __align__(16) float warp_sums[kWarps][kMaxHeadDim];
  __shared__ __align__(16) float mean[kMaxHeadDim];
  __shared__ float reduce_shared[33];
  __shared__ uint32_t shared_ticket;

  const Launch& launch = params.launch;
  const uint32_t work =
      params.phases == 3 ? take_ticket(params.ticket, &shared_ticket) + 1u : blockIdx.x;
  const uint32_t unit_index = params.chunks.divide(work);
  const int chunk = static_cast<int>(work - unit_index * params.chunks.divisor);
  const Unit unit = unit_of(launch, unit_index);
  const int length = params.batch.lengths[unit.job];
  const int begin = chunk * kKeys;
  if (begin >= length) return;
  const int used_chunks = (length + kKeys - 1) / kKeys;
  const int head_dim = launch.head_dim, half = params.rotary_dim / 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane % kLanes;
  const bool active = group * 16 < head_dim;
  const bool rotary = group * 16 < params.rotary_dim;
  // First elements of the two groups.
  const int first = rotary ? group * 8 : group * 16;
  const int second = rotary ? half + group * 8 : group * 16 + 8;
  const int key_begin = begin + warp * kWarpKeys + lane / kLanes;
  const int64_t unit_chunk = static_cast<int64_t>(unit_index) * params.chunks.divisor;

  float u[kSteps][16];
  if ((params.phases & 3) != 0) {
    const LayerPointers& layer = launch.layers[unit.layer];
    const T* keys = reinterpret_cast<const T*>(layer.k);
    const int32_t* table = params.batch.block_tables +
                           static_cast<int64_t>(unit.job) * params.batch.block_table_stride;
    const int32_t* positions = layer.positions;
    if (positions != nullptr)
      positions += history_offset(launch, params.batch.slots[unit.job], unit.head);
    const int history = params.batch.histories[unit.job],
              offset = params.batch.position_offsets[unit.job];
    Packed8<T> packed[kSteps][2];
    int position[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int key = key_begin + s * kStepKeys;
      if (active && key < length) {
        position[s] = position_of(positions, key, history, offset);
        const T* entry = keys + entry_offset(launch, table, unit.head, key);
        packed[s][0].load(entry + first);
        packed[s][1].load(entry + second);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int key = key_begin + s * kStepKeys;
      const bool valid = active && key < length;
#pragma unroll
      for (int i = 0; i < 16; ++i) u[s][i] = 0;
      if (valid) {
        packed[s][0].unpack(u[s]);
        packed[s][1].unpack(u[s] + 8);
      }
      float norm = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) norm = fmaf(u[s][i], u[s][i], norm);
#pragma unroll
      for (int step = 1; step < kLanes; step <<= 1)
        norm += __shfl_xor_sync(0xffffffffu, norm, step);
      const float inverse = 1.0f / fmaxf(sqrtf(norm), kMinNorm);
      if (valid && rotary) {
        const float* angles =
            params.rope_cos_sin + static_cast<int64_t>(position[s]) * params.rotary_dim + group * 8;
        float c[8], sine[8];
        Packed8<float> raw;
        raw.load(angles);
        raw.unpack(c);
        raw.load(angles + half);
        raw.unpack(sine);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float a = u[s][i], b = u[s][8 + i];
          u[s][i] = a * c[i] + b * sine[i];
          u[s][8 + i] = b * c[i] - a * sine[i];
        }
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) u[s][i] *= inverse;
    }
  }

  if ((params.phases & 1) != 0) {
    float sum[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sum[i] = 0;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) sum[i] += u[s][i];
#pragma unroll
      for (int step = kLanes; step < 32; step <<= 1)
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
    }
    if (lane < kLanes && active) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        warp_sums[warp][first + i] = sum[i];
        warp_sums[warp][second + i] = sum[8 + i];
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head_dim; i += kThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += warp_sums[w][i];
      publish(params.sums + (unit_chunk + chunk) * head_dim + i, total);
    }
    __syncthreads();  // warp_sums is used again
  }

  if ((params.phases & 2) != 0) {
    float* out = params.out + unit.row * launch.capacity;
    float logits[kSteps];
    // Several threads an element, each with eight chunks at a time; added up in a fixed order.
    const int sharers = min(kThreads / head_dim, kWarps);
    const int element = static_cast<int>(threadIdx.x) % head_dim;
    const int share = static_cast<int>(threadIdx.x) / head_dim;
    if (share < sharers) {
      const float* sums = params.sums + unit_chunk * head_dim + element;
      float total = 0;
      for (int base = share * 8; base < used_chunks; base += sharers * 8) {
        float part[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          part[c] = base + c < used_chunks
                        ? read_published(sums + static_cast<int64_t>(base + c) * head_dim)
                        : 0.0f;
        }
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          while (!is_published(part[c])) {
            __nanosleep(20);
            part[c] = read_published(sums + static_cast<int64_t>(base + c) * head_dim);
          }
        }
#pragma unroll
        for (int c = 0; c < 8; ++c) total += part[c];
      }
      warp_sums[share][element] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head_dim; i += kThreads) {
      float total = 0;
      for (int c = 0; c < sharers; ++c) total += warp_sums[c][i];
      mean[i] = total / static_cast<float>(length);
    }
    __syncthreads();
    float m[16];
    if (active) {
#pragma unroll
      for (int i = 0; i < 8; ++i) m[i] = mean[first + i], m[8 + i] = mean[second + i];
    }
    float most = -INFINITY;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float dot = 0;
      if (active) {
#pragma unroll
        for (int i = 0; i < 16; ++i) dot = fmaf(u[s][i], m[i], dot);
      }
#pragma unroll
      for (int step = 1; step < kLanes; step <<= 1) dot += __shfl_xor_sync(0xffffffffu, dot, step);
      logits[s] = dot / params.temperature;
      if (key_begin + s * kStepKeys < length) most = fmaxf(most, logits[s]);
    }
    most = block_reduce<true>(most, reduce_shared);
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int key = key_begin + s * kStepKeys;
      if (group == 0 && key < length) {
        sum += exp2f((logits[s] - most) * kLog2E);
        out[key] = logits[s];
      }
    }
    sum = block_reduce<false>(sum, reduce_shared);
    if (threadIdx.x == 0) params.exponentials[unit_chunk + chunk] = make_float2(most, sum);
  }
}

// One block a unit: out = exp(logit) over the sum of all, from the chunks' largest and sums.
__global__ void __launch_bounds__(kThreads)
    quotient_kernel(const __grid_constant__ Params params, int chunk_keys) {
  __shared__ float2 totals;
  const Unit unit = unit_of(params.launch, blockIdx.x);
  const int length = params.batch.lengths[unit.job];
  const int used_chunks = (length + chunk_keys - 1) / chunk_keys;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* out = params.out + unit.row * params.launch.capacity;
  constexpr int kHeld = 8;  // logits a thread has in flight
  float logits[kHeld];
  const auto load = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int key = begin + i * kThreads + static_cast<int>(threadIdx.x);
      logits[i] = key < length ? out[key] : 0.0f;
    }
  };
  load(0);
  if (warp == 0) {
    const float2* parts =
        params.exponentials + static_cast<int64_t>(blockIdx.x) * params.chunks.divisor;
    float most = -INFINITY, sum = 0;
    for (int base = 0; base < used_chunks; base += 32) {
      const float2 part =
          base + lane < used_chunks ? parts[base + lane] : make_float2(-INFINITY, 0);
      const float before = most;
      most = fmaxf(most, warp_max(part.x));
      sum = sum * exp2f((before - most) * kLog2E) +
            warp_sum(part.y * exp2f((part.x - most) * kLog2E));
    }
    if (lane == 0) totals = make_float2(most, sum);
  }
  __syncthreads();
  for (int begin = 0; begin < length; begin += kHeld * kThreads) {
    if (begin > 0) load(begin);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int key = begin + i * kThreads + static_cast<int>(threadIdx.x);
      if (key < length) out[key] = exp2f((logits[i] - totals.x) * kLog2E) / totals.y;
    }
  }
}

int keys_per_chunk(int lanes) { return 32 / lanes * kSteps * kWarps; }
int lanes_of(int head_dim) { return head_dim <= 64 ? 4 : head_dim <= 128 ? 8 : 16; }

template <typename T, int kLanes>
void run(Params params, const CudaContext& context, std::byte* workspace, cudaStream_t stream) {
  const int chunks = ceil_div(params.batch.max_length, keys_per_chunk(kLanes));
  const int units = params.launch.num_units();
  params.chunks = FastDiv(static_cast<uint32_t>(chunks));
  const auto unit_chunks = static_cast<size_t>(units) * static_cast<size_t>(chunks);
  const size_t sum_bytes =
      sizeof(float) * unit_chunks * static_cast<size_t>(params.launch.head_dim);
  params.ticket = reinterpret_cast<uint32_t*>(workspace);
  params.sums = reinterpret_cast<float*>(workspace + kTicketBytes);
  params.exponentials = reinterpret_cast<float2*>(workspace + kTicketBytes + sum_bytes);
  const auto start = [&](int phases) {
    params.phases = phases;
    center_kernel<T, kLanes><<<units * chunks, kThreads, 0, stream>>>(params);
    ZIPAGE_CUDA_CHECK_LAUNCH("centre redundancy");
  };
  if (chunks <= max_waiting_blocks(context)) {
    ZIPAGE_CUDA_CHECK(
        cudaMemsetAsync(workspace, kUnpublishedByte, kTicketBytes + sum_bytes, stream));
    start(3);
  } else {
    start(1);
    start(2);
  }
  quotient_kernel<<<units, kThreads, 0, stream>>>(params, keys_per_chunk(kLanes));
  ZIPAGE_CUDA_CHECK_LAUNCH("centre redundancy: quotients");
}

template <typename T>
void run_lanes(const Params& params,
               const CudaContext& context,
               std::byte* workspace,
               cudaStream_t stream) {
  switch (lanes_of(params.launch.head_dim)) {
    case 4:
      return run<T, 4>(params, context, workspace, stream);
    case 8:
      return run<T, 8>(params, context, workspace, stream);
    default:
      return run<T, 16>(params, context, workspace, stream);
  }
}

}  // namespace

size_t center_unit_bytes(int max_length, int head_dim) {
  const auto chunks = static_cast<size_t>(ceil_div(max_length, keys_per_chunk(lanes_of(head_dim))));
  return chunks * (sizeof(float2) + sizeof(float) * static_cast<size_t>(head_dim));
}

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_center_redundancy(const CenterRedundancyArgs& args,
                              const CudaContext& context,
                              cudaStream_t stream) {
  const PagedKvView& kv = *args.kv;
  if (kv.head_dim % 16 != 0 || kv.head_dim > kMaxHeadDim) {
    kernel_lacks("center_redundancy", "head_dim", kv.head_dim, "multiples of 16 up to 256");
  }
  if (args.rotary_dim % 16 != 0) {
    kernel_lacks("center_redundancy", "rotary_dim", args.rotary_dim, "multiples of 16");
  }
  if (args.batch->max_length <= 0) return;
  Params params{};
  params.batch = *args.batch;
  params.temperature = args.temperature;
  params.rope_cos_sin = args.rope_cos_sin;
  params.rotary_dim = args.rotary_dim;
  params.out = args.out;
  for_each_launch(kv, args.batch->num_jobs, args.layer_begin, args.num_layers, args.capacity,
                  center_unit_bytes(args.batch->max_length, kv.head_dim),
                  [&](const Launch& launch) {
                    params.launch = launch;
                    auto* workspace = reinterpret_cast<std::byte*>(args.workspace);
                    if (kv.dtype == DType::kBF16) {
                      run_lanes<__nv_bfloat16>(params, context, workspace, stream);
                    } else if (kv.dtype == DType::kF16) {
                      run_lanes<__half>(params, context, workspace, stream);
                    } else {
                      run_lanes<float>(params, context, workspace, stream);
                    }
                  });
}

}  // namespace zipage
