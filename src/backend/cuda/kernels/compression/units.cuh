// The geometry of a compression launch: a unit is one KV head of one layer of one job (a request that is compressed), and
// every kernel here maps its blocks to units. Launch says which jobs and layers one launch covers and how an entry of a
// unit is addressed; for_each_launch() cuts a batch into launches whose layer pointers fit in the kernel parameters and whose
// partial results fit in the workspace.
//
//   for_each_launch(kv, num_jobs, layer_begin, num_layers, capacity, bytes_per_unit, [&](const Launch& launch) {
//     kernel<<<launch.num_units(), kThreads, 0, stream>>>(launch, ...);   // in it: unit_of(launch, blockIdx.x)
//   });
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/compression/limits.h"
#include "backend/kv_view.h"
#include "backend/ops/compression.h"

namespace zipage::compression {

inline constexpr int kMaxLayersPerLaunch = 48;  // layer pointers travel as kernel parameters (4 KB)

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

// ---- Host ----

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

}  // namespace zipage::compression
