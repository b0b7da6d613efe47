// Centre redundancy (method.md 3.2): R = softmax(u_i . mean_j(u_j) / tau), u_i = unit(R(-pos_i) k_i).
//
// Idea: K is read once. A block keeps the unit vectors of one chunk of keys in registers, adds them up, waits for the sums of
// the unit's other chunks (published, without a fence) and takes the dot products with their mean. A second kernel divides by
// the sum of the exponentials: another wait would cost more than its launch. Where a unit has too many chunks to wait for,
// two launches of the same kernel do it, and K is read twice.
//
// Cost of one job of 2,048 entries, 36 layers x 8 KV heads, head_dim 128, bf16: 151 MB of K, 0.035 ms at 4.27 TB/s; the sums
// in registers and the rotation back are f32 arithmetic, 0.4 GFLOP.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): 0.162 ms, 22 %; 8 layers a launch: 0.191 ms, 18 %: a chunk waits
// in memory with nothing in flight meanwhile.
// Tried and dropped: waiting twice (sums, then exponentials) in one kernel.
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/keys.cuh"
#include "backend/cuda/kernels/compression/units.cuh"
#include "backend/cuda/kernels/compression/wait.cuh"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSteps = 4;  // keys a thread has a part of
constexpr int kMaxHeadDim = 256;
constexpr int kSharedChunks = 8;  // whose sums a thread reads together
constexpr size_t kTicketBytes = 256;

// What a launch of center_kernel does. With kBoth, blocks wait for the sums of others.
enum class Phases { kSums, kLogits, kBoth };

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
  Phases phases;
};

struct Shared {
  alignas(16) float warp_sums[kWarps][kMaxHeadDim];
  alignas(16) float mean[kMaxHeadDim];
  BlockReduceShared reduce;
  uint32_t ticket;
};

// The chunk of a block and the thread's share of it. kLanes lanes share a key; each has two groups of 8 elements, in the
// rotary part those that one angle turns: elements first + i and second + i.
template <typename T, int kLanes>
struct Chunk {
  static constexpr int kStepKeys = 32 / kLanes;
  static constexpr int kWarpKeys = kStepKeys * kSteps;
  static constexpr int kKeys = kWarpKeys * kWarps;

  const Params& params;
  Unit unit;
  int index;           // of the unit's chunks
  int length;          // of the unit
  int64_t unit_chunk;  // the unit's first chunk among all
  int group;           // of 16 elements that this lane has of a key
  bool active;         // there are such elements
  bool rotary;         // and they are rotated
  int half;            // of the rotary part
  int first, second;
  int key_begin;        // the thread's first key
  float u[kSteps][16];  // unit vectors

  __device__ Chunk(const Params& p, uint32_t work) : params(p) {
    const uint32_t unit_index = p.chunks.divide(work);
    index = static_cast<int>(work - unit_index * p.chunks.divisor);
    unit = unit_of(p.launch, unit_index);
    length = p.batch.lengths[unit.job];
    unit_chunk = static_cast<int64_t>(unit_index) * p.chunks.divisor;
    group = lane_id() % kLanes;
    active = group * 16 < p.launch.head_dim;
    rotary = group * 16 < p.rotary_dim;
    half = p.rotary_dim / 2;
    first = rotary ? group * 8 : group * 16;
    second = rotary ? half + group * 8 : group * 16 + 8;
    key_begin = index * kKeys + static_cast<int>(threadIdx.x) / 32 * kWarpKeys + lane_id() / kLanes;
  }
  __device__ bool exists() const { return index * kKeys < length; }
  __device__ int used_chunks() const { return (length + kKeys - 1) / kKeys; }
  __device__ int key_of(int step) const { return key_begin + step * kStepKeys; }

  // u of one key by `angles`, the cosines and sines of its position.
  __device__ void rotate_back(const float* angles, float (&x)[16]) const {
    float c[8], sine[8];
    Packed8<float> raw;
    raw.load(angles);
    raw.unpack(c);
    raw.load(angles + half);
    raw.unpack(sine);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = x[i], b = x[8 + i];
      x[i] = a * c[i] + b * sine[i];
      x[8 + i] = b * c[i] - a * sine[i];
    }
  }
  // Reads the thread's keys and makes unit vectors of them; zeros past the end.
  __device__ void load() {
    const Launch& launch = params.launch;
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
      if (active && key_of(s) < length) {
        position[s] = position_of(positions, key_of(s), history, offset);
        const T* entry = keys + entry_offset(launch, table, unit.head, key_of(s));
        packed[s][0].load(entry + first);
        packed[s][1].load(entry + second);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const bool valid = active && key_of(s) < length;
#pragma unroll
      for (int i = 0; i < 16; ++i) u[s][i] = 0;
      if (valid) {
        packed[s][0].unpack(u[s]);
        packed[s][1].unpack(u[s] + 8);
      }
      float squares = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) squares = fmaf(u[s][i], u[s][i], squares);
      const float inverse = inverse_norm(reduce_lanes<1, kLanes / 2>(squares, Sum()));
      if (valid && rotary) {
        rotate_back(
            params.rope_cos_sin + static_cast<int64_t>(position[s]) * params.rotary_dim + group * 8,
            u[s]);
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) u[s][i] *= inverse;
    }
  }

  // The chunk's sum of unit vectors, published.
  __device__ void publish_sum(Shared& shared) const {
    const int head_dim = params.launch.head_dim;
    float sum[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sum[i] = 0;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) sum[i] += u[s][i];
      sum[i] = reduce_lanes<kLanes, 16>(sum[i], Sum());
    }
    if (lane_id() < kLanes && active) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        shared.warp_sums[warp][first + i] = sum[i];
        shared.warp_sums[warp][second + i] = sum[8 + i];
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head_dim; i += kThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += shared.warp_sums[w][i];
      store_relaxed(params.sums + (unit_chunk + index) * head_dim + i, total);
    }
    __syncthreads();  // warp_sums is used again
  }

  // The mean of the unit's vectors to shared.mean. Several threads an element, each with kSharedChunks chunks at a time;
  // added up in a fixed order.
  __device__ void wait_for_mean(Shared& shared) const {
    const int head_dim = params.launch.head_dim;
    const int used = used_chunks();
    const int sharers = min(kThreads / head_dim, kWarps);
    const int element = static_cast<int>(threadIdx.x) % head_dim;
    const int share = static_cast<int>(threadIdx.x) / head_dim;
    if (share < sharers) {
      const float* sums = params.sums + unit_chunk * head_dim + element;
      float total = 0;
      for (int base = share * kSharedChunks; base < used; base += sharers * kSharedChunks) {
        const auto place = [&](int c) { return sums + static_cast<int64_t>(base + c) * head_dim; };
        float part[kSharedChunks];
#pragma unroll
        for (int c = 0; c < kSharedChunks; ++c)
          part[c] = base + c < used ? load_relaxed(place(c)) : 0.0f;
#pragma unroll
        for (int c = 0; c < kSharedChunks; ++c) wait_until_published(part[c], place(c));
#pragma unroll
        for (int c = 0; c < kSharedChunks; ++c) total += part[c];
      }
      shared.warp_sums[share][element] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < head_dim; i += kThreads) {
      float total = 0;
      for (int c = 0; c < sharers; ++c) total += shared.warp_sums[c][i];
      shared.mean[i] = total / static_cast<float>(length);
    }
    __syncthreads();
  }

  // Logits to the score's row; the chunk's largest and sum of exponentials for the second kernel.
  __device__ void store_logits(Shared& shared) const {
    float* out = params.out + unit.row * params.launch.capacity;
    float logits[kSteps];
    float m[16];
    if (active) {
#pragma unroll
      for (int i = 0; i < 8; ++i) m[i] = shared.mean[first + i], m[8 + i] = shared.mean[second + i];
    }
    float most = -INFINITY;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float dot = 0;
      if (active) {
#pragma unroll
        for (int i = 0; i < 16; ++i) dot = fmaf(u[s][i], m[i], dot);
      }
      logits[s] = reduce_lanes<1, kLanes / 2>(dot, Sum()) / params.temperature;
      if (key_of(s) < length) most = fmaxf(most, logits[s]);
    }
    most = block_max(most, shared.reduce);
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (group == 0 && key_of(s) < length) {
        sum += exp2f((logits[s] - most) * kLog2e);
        out[key_of(s)] = logits[s];
      }
    }
    sum = block_sum(sum, shared.reduce);
    if (threadIdx.x == 0) params.exponentials[unit_chunk + index] = make_float2(most, sum);
  }
};

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads, 2)
    center_kernel(const __grid_constant__ Params params) {
  __shared__ Shared shared;
  // The ticket counter begins with all bits set.
  const uint32_t work =
      params.phases == Phases::kBoth ? take_ticket(params.ticket, &shared.ticket) + 1u : blockIdx.x;
  Chunk<T, kLanes> chunk(params, work);
  if (!chunk.exists()) return;
  chunk.load();
  if (params.phases != Phases::kLogits) chunk.publish_sum(shared);
  if (params.phases != Phases::kSums) {
    chunk.wait_for_mean(shared);
    chunk.store_logits(shared);
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
      sum = sum * exp2f((before - most) * kLog2e) +
            warp_sum(part.y * exp2f((part.x - most) * kLog2e));
    }
    if (lane == 0) totals = make_float2(most, sum);
  }
  __syncthreads();
  for (int begin = 0; begin < length; begin += kHeld * kThreads) {
    if (begin > 0) load(begin);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int key = begin + i * kThreads + static_cast<int>(threadIdx.x);
      if (key < length) out[key] = exp2f((logits[i] - totals.x) * kLog2e) / totals.y;
    }
  }
}

int keys_per_chunk(int lanes) { return 32 / lanes * kSteps * kWarps; }
int lanes_of(int head_dim) { return head_dim <= 64 ? 4 : head_dim <= 128 ? 8 : 16; }

template <typename T, int kLanes>
void run(Params params, const CudaContext& context, std::byte* workspace, cudaStream_t stream) {
  const int chunks = num_parts(params.batch.max_length, keys_per_chunk(kLanes));
  const int units = params.launch.num_units();
  params.chunks = FastDiv(static_cast<uint32_t>(chunks));
  const auto unit_chunks = static_cast<size_t>(units) * static_cast<size_t>(chunks);
  const size_t sum_bytes =
      sizeof(float) * unit_chunks * static_cast<size_t>(params.launch.head_dim);
  params.ticket = reinterpret_cast<uint32_t*>(workspace);
  params.sums = reinterpret_cast<float*>(workspace + kTicketBytes);
  params.exponentials = reinterpret_cast<float2*>(workspace + kTicketBytes + sum_bytes);
  const auto start = [&](Phases phases) {
    params.phases = phases;
    center_kernel<T, kLanes><<<units * chunks, kThreads, 0, stream>>>(params);
    ZIPAGE_CUDA_CHECK_LAUNCH("centre redundancy");
  };
  if (chunks <= max_waiting_blocks(context)) {
    ZIPAGE_CUDA_CHECK(
        cudaMemsetAsync(workspace, kUnpublishedByte, kTicketBytes + sum_bytes, stream));
    start(Phases::kBoth);
  } else {
    start(Phases::kSums);
    start(Phases::kLogits);
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
  const auto chunks =
      static_cast<size_t>(num_parts(max_length, keys_per_chunk(lanes_of(head_dim))));
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
