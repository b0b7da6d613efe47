// Compaction (Alg. 4): the kept entries move to the front of the target blocks, in order; F and positions follow.
//
// Idea: a thread block owns a vertical slice of one unit's K or V (or its F and positions) and walks the kept entries in
// ascending order, reading a tile before it writes the one before: an entry is never overwritten before it is read, also in
// place, because a write never lands beyond the slots already read and thread blocks own disjoint bytes.
//
// Cost of one job, 1,792 of 2,048 entries kept, 36 layers x 8 KV heads, head_dim 128, bf16: 529 MB, 0.124 ms at 4.27 TB/s.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): 0.163 ms, 76 %; 8 layers a launch 0.190 ms, 65 %; four jobs 0.518
// ms, 96 %.
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/units.cuh"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;         // 16-byte pieces a thread has in flight
constexpr int kHistoryRows = 8;  // entries of F a thread moves at a time

struct Params {
  Launch launch;
  const int32_t* slots;
  const int32_t* keeps;
  const int32_t* histories;
  const int32_t* position_offsets;
  const int32_t* block_tables;
  const int32_t* target_tables;
  int32_t table_stride;
  const float* history;  // score scratch rows, or null: F of the layers
  const int32_t* kept;
  int32_t kept_stride;
  int32_t pieces;         // 16-byte pieces of an entry that one block moves
  int32_t slices;         // blocks that share an entry's bytes
  int32_t rows_per_pass;  // kThreads / pieces
  int32_t entry_bytes;
  int32_t data_blocks;  // of all units; blocks beyond move F and positions
};

// F and positions of one unit.
__device__ void move_history(const Params& params,
                             const Unit& unit,
                             const int32_t* kept,
                             int keep) {
  const Launch& launch = params.launch;
  const LayerPointers& layer = launch.layers[unit.layer];
  const int64_t at = history_offset(launch, params.slots[unit.job], unit.head);
  float* scores = layer.scores != nullptr ? layer.scores + at : nullptr;
  int32_t* positions = layer.positions != nullptr ? layer.positions + at : nullptr;
  const float* from =
      params.history != nullptr ? params.history + unit.row * launch.capacity : nullptr;
  const int history = params.histories[unit.job], offset = params.position_offsets[unit.job];
  constexpr int kTile = kThreads * kHistoryRows;
  for (int begin = 0; begin < keep; begin += kTile) {
    float f[kHistoryRows];
    int32_t position[kHistoryRows];
#pragma unroll
    for (int r = 0; r < kHistoryRows; ++r) {
      const int i = begin + r * kThreads + static_cast<int>(threadIdx.x);
      if (i >= keep) continue;
      const int source = kept[i];
      f[r] = 0;
      if (from != nullptr) {
        f[r] = from[source];
      } else if (scores != nullptr && source < launch.score_capacity) {
        f[r] = __ldcg(scores + source);
      }
      position[r] =
          positions != nullptr && source < history ? __ldcg(positions + source) : source + offset;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kHistoryRows; ++r) {
      const int i = begin + r * kThreads + static_cast<int>(threadIdx.x);
      if (i >= keep) continue;
      if (scores != nullptr) scores[i] = f[r];
      if (positions != nullptr) positions[i] = position[r];
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    compact_kernel(const __grid_constant__ Params params) {
  const Launch& launch = params.launch;
  const int block = static_cast<int>(blockIdx.x);
  const bool moves_history = block >= params.data_blocks;
  const int parts = 2 * params.slices;
  const int unit_index = moves_history ? block - params.data_blocks : block / parts;
  const int part = block % parts;
  const Unit unit = unit_of(launch, unit_index);
  const int keep = params.keeps[unit.job];
  const int32_t* kept = params.kept + unit.row * params.kept_stride;
  if (moves_history) return move_history(params, unit, kept, keep);

  const LayerPointers& layer = launch.layers[unit.layer];
  std::byte* base = const_cast<std::byte*>(part < params.slices ? layer.k : layer.v);
  const int row = static_cast<int>(threadIdx.x) / params.pieces;
  const int piece = static_cast<int>(threadIdx.x) - row * params.pieces +
                    (part < params.slices ? part : part - params.slices) * params.pieces;
  base += piece * 16;
  // The last slice may be narrower.
  const bool active = row < params.rows_per_pass && piece * 16 < params.entry_bytes;
  const int64_t table_at = static_cast<int64_t>(unit.job) * params.table_stride;
  const int32_t* from_table = params.block_tables + table_at;
  const int32_t* to_table = params.target_tables + table_at;
  const int64_t element_bytes = params.entry_bytes / launch.head_dim;
  const int tile = params.rows_per_pass * kRows;

  uint4 values[2][kRows];
  std::byte* targets[2][kRows];
  int32_t sources[kRows];  // of the next tile to read
  const auto look_up = [&](int begin) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = begin + r * params.rows_per_pass + row;
      sources[r] = active && i < keep ? __ldg(kept + i) : -1;
    }
  };
  // Reads tile `begin`; pieces that stay where they are get no target.
  const auto read = [&](int begin, uint4(&value)[kRows], std::byte*(&target)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      target[r] = nullptr;
      if (sources[r] < 0) continue;
      const int i = begin + r * params.rows_per_pass + row;
      const std::byte* from =
          base + entry_offset(launch, from_table, unit.head, sources[r]) * element_bytes;
      std::byte* to = base + entry_offset(launch, to_table, unit.head, i) * element_bytes;
      if (from == to) continue;
      value[r] = __ldcg(reinterpret_cast<const uint4*>(from));
      target[r] = to;
    }
    look_up(begin + tile);
  };
  const auto write = [&](const uint4(&value)[kRows], std::byte* const(&target)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (target[r] != nullptr) __stcg(reinterpret_cast<uint4*>(target[r]), value[r]);
    }
  };
  look_up(0);
  read(0, values[0], targets[0]);
  for (int begin = 0; begin < keep; begin += 2 * tile) {
    read(begin + tile, values[1], targets[1]);
    __syncthreads();
    write(values[0], targets[0]);
    read(begin + 2 * tile, values[0], targets[0]);
    __syncthreads();
    write(values[1], targets[1]);
  }
}

}  // namespace

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_compact(const CompactArgs& args, const CudaContext& context, cudaStream_t stream) {
  const CompressionBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  Params params{};
  params.slots = batch.slots;
  params.keeps = batch.keeps;
  params.histories = batch.histories;
  params.position_offsets = batch.position_offsets;
  params.block_tables = batch.block_tables;
  params.target_tables = batch.target_tables;
  params.table_stride = batch.block_table_stride;
  params.history = args.history;
  params.kept = args.kept;
  params.kept_stride = args.kept_stride;
  params.entry_bytes = kv.head_dim * (kv.dtype == DType::kF32 ? 4 : 2);
  const int pieces = params.entry_bytes / 16;
  for_each_launch(kv, batch.num_jobs, args.layer_begin, args.num_layers, args.capacity, 1,
                  [&](const Launch& launch) {
                    params.launch = launch;
                    const bool has_history =
                        launch.layers[0].scores != nullptr || launch.layers[0].positions != nullptr;
                    // Entries are cut into slices of at least 128 bytes while there are few blocks
                    // a multiprocessor.
                    params.slices = 1;
                    while (launch.num_units() * 2 * params.slices < 8 * context.num_sms &&
                           pieces / (params.slices * 2) >= 8) {
                      params.slices *= 2;
                    }
                    params.pieces = num_parts(pieces, params.slices);
                    params.rows_per_pass = kThreads / params.pieces;
                    params.data_blocks = launch.num_units() * 2 * params.slices;
                    const int blocks = params.data_blocks + (has_history ? launch.num_units() : 0);
                    compact_kernel<<<blocks, kThreads, 0, stream>>>(params);
                    ZIPAGE_CUDA_CHECK_LAUNCH("compaction");
                  });
}

}  // namespace zipage
