// The compression ops that treat each score by itself, or sum a row: global score (Alg. 2), pooling, F / sum(F), combination,
// plain scores and protection.
//
// Idea: a thread block covers kPart entries of one unit's row (normalized_history: a whole row, since it sums).
//
// Cost of one job of 2,048 scores, 36 layers x 8 KV heads: 2.4 MB read and written, about 1 us: launches decide.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): 0.011 to 0.018 ms each at 8 layers a launch.
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/units.cuh"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kPart = 1024;  // entries a block covers
constexpr int kRowThreads = 512;

// Calls body(row of the scratch, entry) for every entry of `launch`; blockIdx.x is the unit,
// blockIdx.y the part.
template <typename Body>
__device__ void for_each_entry(const Launch& launch, const CompressionBatch& batch, Body&& body) {
  const Unit unit = unit_of(launch, blockIdx.x);
  const int length = batch.lengths[unit.job];
  const int end = min(length, static_cast<int>(blockIdx.y + 1) * kPart);
  for (int i = static_cast<int>(blockIdx.y) * kPart + threadIdx.x; i < end; i += kThreads)
    body(unit, i, length);
}

__global__ void __launch_bounds__(kThreads)
    global_score_kernel(const __grid_constant__ Launch launch,
                        const CompressionBatch batch,
                        float decay,
                        ScoreReduce reduce,
                        float* __restrict__ score) {
  for_each_entry(launch, batch, [&](const Unit& unit, int i, int) {
    if (i >= batch.histories[unit.job]) return;
    const float* history =
        launch.layers[unit.layer].scores + history_offset(launch, batch.slots[unit.job], unit.head);
    float& s = score[unit.row * launch.capacity + i];
    const float f = decay * __ldg(history + i);
    s = reduce == ScoreReduce::kMax ? fmaxf(f, s) : f + s;
  });
}

__global__ void __launch_bounds__(kThreads) max_pool_kernel(const __grid_constant__ Launch launch,
                                                            const CompressionBatch batch,
                                                            int radius,
                                                            bool only_first,
                                                            const float* __restrict__ score,
                                                            float* __restrict__ out) {
  for_each_entry(launch, batch, [&](const Unit& unit, int i, int length) {
    const int64_t row = unit.row * launch.capacity;
    float most = score[row + i];
    if (!only_first || batch.histories[unit.job] == 0) {
      for (int j = max(i - radius, 0); j <= min(i + radius, length - 1); ++j)
        most = fmaxf(most, score[row + j]);
    }
    out[row + i] = most;
  });
}

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Launch launch,
                                                           const CompressionBatch batch,
                                                           float attention_weight,
                                                           float redundancy_weight,
                                                           const float* attention,
                                                           const float* redundancy,
                                                           float* score) {
  for_each_entry(launch, batch, [&](const Unit& unit, int i, int) {
    const int64_t at = unit.row * launch.capacity + i;
    float s = 0;
    if (attention != nullptr && redundancy != nullptr) {
      s = __fsub_rn(__fmul_rn(attention_weight, attention[at]),
                    __fmul_rn(redundancy_weight, redundancy[at]));
    } else {
      s = attention != nullptr ? attention[at] : -redundancy[at];
    }
    score[at] = s;
  });
}

__device__ inline uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__global__ void __launch_bounds__(kThreads)
    plain_score_kernel(const __grid_constant__ Launch launch,
                       const CompressionBatch batch,
                       bool random,
                       float* __restrict__ score) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
  for_each_entry(launch, batch, [&](const Unit& unit, int i, int) {
    float s = static_cast<float>(i);
    if (random) {
      const int32_t* positions = launch.layers[unit.layer].positions;
      if (positions != nullptr)
        positions += history_offset(launch, batch.slots[unit.job], unit.head);
      const int position =
          position_of(positions, i, batch.histories[unit.job], batch.position_offsets[unit.job]);
      uint64_t h = mix(batch.seeds[unit.job] +
                       kStep * static_cast<uint64_t>(launch.model_layer + unit.layer + 1));
      h = mix(h + kStep * static_cast<uint64_t>(unit.head + 1));
      h = mix(h + kStep * static_cast<uint64_t>(static_cast<int64_t>(position) + 1));
      s = static_cast<float>(h >> 40) * 0x1p-24f;
    }
    score[unit.row * launch.capacity + i] = s;
  });
}

__global__ void __launch_bounds__(kThreads) protect_kernel(const __grid_constant__ Launch launch,
                                                           const CompressionBatch batch,
                                                           int newest,
                                                           int sinks,
                                                           bool protect_prompt,
                                                           float* __restrict__ score) {
  for_each_entry(launch, batch, [&](const Unit& unit, int i, int length) {
    bool keep = i >= length - newest;
    if (!keep && (sinks > 0 || protect_prompt)) {
      const int32_t* positions = launch.layers[unit.layer].positions;
      if (positions != nullptr)
        positions += history_offset(launch, batch.slots[unit.job], unit.head);
      const int position =
          position_of(positions, i, batch.histories[unit.job], batch.position_offsets[unit.job]);
      keep = position < sinks || (protect_prompt && position < batch.prompt_lengths[unit.job]);
    }
    if (keep) score[unit.row * launch.capacity + i] = INFINITY;
  });
}

// One block a unit: the sum runs over strided partial sums and a tree, fixed by the length alone.
__global__ void __launch_bounds__(kRowThreads)
    normalized_history_kernel(const __grid_constant__ Launch launch,
                              const CompressionBatch batch,
                              const float* __restrict__ history,
                              float* __restrict__ score) {
  __shared__ BlockReduceShared shared;
  const Unit unit = unit_of(launch, blockIdx.x);
  const int length = batch.lengths[unit.job];
  const float* row = history != nullptr
                         ? history + unit.row * launch.capacity
                         : launch.layers[unit.layer].scores +
                               history_offset(launch, batch.slots[unit.job], unit.head);
  float sum = 0;
  for (int i = threadIdx.x; i < length; i += kRowThreads) sum += row[i];
  sum = block_sum(sum, shared);
  float* out = score + unit.row * launch.capacity;
  for (int i = threadIdx.x; i < length; i += kRowThreads) out[i] = sum == 0 ? 0.0f : row[i] / sum;
}

template <typename Run>
void for_each_row(const CompressionOpArgs& args, Run&& run) {
  const CompressionBatch& batch = *args.batch;
  if (batch.max_length <= 0) return;
  for_each_launch(*args.kv, batch.num_jobs, args.layer_begin, args.num_layers, args.capacity, 1,
                  [&](const Launch& launch) {
                    run(launch, dim3(launch.num_units(), num_parts(batch.max_length, kPart)));
                  });
}

}  // namespace

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_global_score(const GlobalScoreArgs& args, const CudaContext&, cudaStream_t stream) {
  for_each_row(args, [&](const Launch& launch, dim3 grid) {
    global_score_kernel<<<grid, kThreads, 0, stream>>>(launch, *args.batch, args.decay, args.reduce,
                                                       args.score);
    ZIPAGE_CUDA_CHECK_LAUNCH("global score");
  });
}

void launch_max_pool(const MaxPoolArgs& args, const CudaContext&, cudaStream_t stream) {
  for_each_row(args, [&](const Launch& launch, dim3 grid) {
    max_pool_kernel<<<grid, kThreads, 0, stream>>>(launch, *args.batch, args.width / 2,
                                                   args.only_first, args.score, args.out);
    ZIPAGE_CUDA_CHECK_LAUNCH("max pool");
  });
}

void launch_combine(const CombineArgs& args, const CudaContext&, cudaStream_t stream) {
  const bool convex = args.combine == Combine::kConvex;
  for_each_row(args, [&](const Launch& launch, dim3 grid) {
    combine_kernel<<<grid, kThreads, 0, stream>>>(launch, *args.batch, convex ? args.weight : 1.0f,
                                                  convex ? 1.0f - args.weight : args.weight,
                                                  args.attention, args.redundancy, args.score);
    ZIPAGE_CUDA_CHECK_LAUNCH("combine");
  });
}

void launch_plain_score(const PlainScoreArgs& args, const CudaContext&, cudaStream_t stream) {
  for_each_row(args, [&](const Launch& launch, dim3 grid) {
    plain_score_kernel<<<grid, kThreads, 0, stream>>>(launch, *args.batch,
                                                      args.policy == KvPolicy::kRandom, args.score);
    ZIPAGE_CUDA_CHECK_LAUNCH("plain score");
  });
}

void launch_protect(const ProtectArgs& args, const CudaContext&, cudaStream_t stream) {
  for_each_row(args, [&](const Launch& launch, dim3 grid) {
    protect_kernel<<<grid, kThreads, 0, stream>>>(launch, *args.batch, args.newest, args.sinks,
                                                  args.protect_prompt, args.score);
    ZIPAGE_CUDA_CHECK_LAUNCH("protect");
  });
}

void launch_normalized_history(const NormalizedHistoryArgs& args,
                               const CudaContext&,
                               cudaStream_t stream) {
  for_each_row(args, [&](const Launch& launch, dim3) {
    normalized_history_kernel<<<launch.num_units(), kRowThreads, 0, stream>>>(
        launch, *args.batch, args.history, args.score);
    ZIPAGE_CUDA_CHECK_LAUNCH("normalized history");
  });
}

}  // namespace zipage
