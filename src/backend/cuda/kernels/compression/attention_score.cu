// Attention of the window's queries over all entries: the score of a compression (Alg. 1) and peak attention F (method.md
// 3.2), for every device, dtype and shape. attention_cluster.cu does the same on Hopper for the usual shapes.
//
// Idea: K is read once. A block holds the keys of one chunk of a unit in shared memory and their products with the window's
// queries in registers (rows of a tile are 16 queries of each of kHeadTiles heads); it publishes each row's maximum and sum of
// exponentials, waits for those of the unit's other chunks, and finishes. While it waits, the keys of its next chunk are on
// their way. Several row tiles (a window above 16, a GQA group above 8) multiply again for the result, and units of too many
// chunks take two launches.
//
// Cost of one request of 2,000 entries, 36 layers x 8 KV heads, head_dim 128, bf16: 147 MB of K, 0.035 ms at 4.27 TB/s; 4.7
// GFLOP.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression) for the cluster kernel, which these shapes take: 0.065 ms, 53 %.
// This kernel alone on one H200, eleven ragged requests: 0.86 ms, where the cluster kernel takes 0.569.
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/compression/attention_cluster.h"
#include "backend/cuda/kernels/compression/attention_products.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/keys.cuh"
#include "backend/cuda/kernels/compression/units.cuh"
#include "backend/cuda/kernels/compression/wait.cuh"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kNoWork = 0xffffffffu;
constexpr int kMaxChunks = 128;    // of a unit whose blocks wait for each other
constexpr int kQueryRows = 16;     // queries of a row tile, for each head
constexpr int kStatsInFlight = 4;  // row statistics that a lane reads together
constexpr size_t kCounterAlignment = 256;

// What a launch of attention_tiles_kernel does. With kBoth, blocks wait for the statistics of others.
enum class Phases { kStatistics, kResult, kBoth };

struct Params : AttentionInput {
  Launch launch;
  float2* row_stats;    // [unit, chunk, row tile, rows of a tile] maximum and sum of exponentials
  uint32_t* counters;   // tickets; then one of each unit, for the kernel of several row tiles
  uint32_t total;       // chunks of all units
  FastDiv chunks;       // of a unit
  int32_t head_groups;  // row tiles that cover the group's heads
  int32_t query_tiles;  // ceil(window / 16)
  Phases phases;
};

// One chunk of a unit's keys.
struct Work {
  uint32_t unit_index;
  int chunk;
  int job, layer, head;
  int length;
  int window;  // queries
  int slot;
};

__device__ inline Work work_of(const Params& params, uint32_t ticket) {
  Work work;
  work.unit_index = params.chunks.divide(ticket);
  work.chunk = static_cast<int>(ticket - work.unit_index * params.chunks.divisor);
  const Unit unit = unit_of(params.launch, work.unit_index);
  work.job = unit.job, work.layer = unit.layer, work.head = unit.head;
  work.length = __ldg(params.lengths + work.job);
  work.window = min(params.launch.window_size, work.length);
  work.slot = __ldg(params.slots + work.job);
  return work;
}

// The next ticket of attention_once_kernel, whose counter begins with all bits set, as all of its workspace.
__device__ inline uint32_t take_chunk(const Params& params) {
  return atomicAdd(params.counters, 1u) + 1u;
}
// `ticket`, or the next one of a chunk that has keys.
template <int kKeys>
__device__ uint32_t skip_empty(const Params& params, uint32_t ticket) {
  while (true) {
    if (ticket >= params.total) return kNoWork;
    const uint32_t unit_index = params.chunks.divide(ticket);
    const int begin = static_cast<int>(ticket - unit_index * params.chunks.divisor) * kKeys;
    if (begin < __ldg(params.lengths + unit_of(params.launch, unit_index).job)) return ticket;
    ticket = take_chunk(params);
  }
}

template <int kRows>
struct Shared {
  float2 warp_stats[kWarps][kRows];
  float row_bias[kRows];
  uint32_t ticket;
};

// A block's chunk: loads, products, statistics and result. kOnce: the window and the group are one row tile, and one launch
// does all: acc is computed once.
template <typename C, int kHeadTiles, int kTiles, bool kOnce>
struct ChunkScorer {
  static constexpr int kRows = kQueryRows * kHeadTiles;  // of a row tile: head * 16 + query
  static constexpr int kWarpKeys = 8 * kTiles;
  static constexpr int kKeys = kWarpKeys * kWarps;
  static constexpr int kPart = 16 / static_cast<int>(sizeof(C));  // elements of a 16-byte piece
  using Largest = float[2][kTiles][2];

  const Params& params;
  const Launch& launch;
  Shared<kRows>& shared;
  const int head_dim = launch.head_dim;
  const int stride = head_dim + kPad<C>;
  const int parts = head_dim / kPart;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  C* const q_shared;
  C* const k_warp;
  const int head_groups = kOnce ? 1 : params.head_groups;
  const int query_tiles = kOnce ? 1 : params.query_tiles;
  const int row_tiles = query_tiles * head_groups;
  // Of row_stats, from chunk to chunk.
  const int64_t tile_step = static_cast<int64_t>(row_tiles) * kRows;
  float acc[kHeadTiles][kTiles][4];  // in the layout of AttentionProducts
  // Of the chunk at work.
  float scale;
  int used_chunks;
  float2* unit_stats;

  __device__ ChunkScorer(const Params& p, Shared<kRows>& block_shared, C* rows)
      : params(p),
        launch(p.launch),
        shared(block_shared),
        q_shared(rows),
        k_warp(rows + kRows * (p.launch.head_dim + kPad<C>)+static_cast<int>(threadIdx.x) / 32 *
                          kWarpKeys * (p.launch.head_dim + kPad<C>)) {}

  __device__ void load_queries(const Work& work, int query_tile, int head_group) const {
    const std::byte* queries = launch.layers[work.layer].queries;
    const int64_t slot_row = static_cast<int64_t>(work.slot) * launch.window_size;
    // Each row by the threads of one half-warp, so that no division is needed.
    for (int row = threadIdx.x / 16; row < kRows; row += kThreads / 16) {
      const int head = head_group * kHeadTiles + row / kQueryRows;
      const int query = query_tile * kQueryRows + row % kQueryRows;  // of the window
      const bool valid = head < params.group && query < work.window;
      const int ring = valid ? (work.length - work.window + query) % launch.window_size : 0;
      const int64_t element =
          ((slot_row + ring) * launch.num_q_heads + work.head * params.group + (valid ? head : 0)) *
          head_dim;
      for (int part = threadIdx.x % 16; part < parts; part += 16) {
        load_row_part<C>(q_shared + row * stride + part * kPart, queries, launch.query_dtype,
                         element + part * kPart, valid);
      }
    }
  }
  __device__ void load_keys(const Work& work) const {
    const std::byte* keys = launch.layers[work.layer].k;
    const int32_t* table =
        params.block_tables + static_cast<int64_t>(work.job) * params.table_stride;
    const int warp_begin = work.chunk * kKeys + warp * kWarpKeys;
    const bool lane_valid = lane < kWarpKeys && warp_begin + lane < work.length;
    const int64_t lane_offset =
        lane_valid ? entry_offset(launch, table, work.head, warp_begin + lane) : 0;
    int key = 0, part = lane;
    while (part >= parts) part -= parts, ++key;
    // Every lane runs the same number of rounds: the offsets come by shuffles.
    for (int i = 0; i < kWarpKeys * parts; i += 32) {
      const int64_t offset = __shfl_sync(kAllLanes, lane_offset, key & 31);
      if (key < kWarpKeys) {
        load_row_part<C>(k_warp + key * stride + part * kPart, keys, launch.dtype,
                         offset + part * kPart, warp_begin + key < work.length);
      }
      part += 32;
      while (part >= parts) part -= parts, ++key;
    }
  }
  __device__ void load(const Work& work) const {
    load_keys(work);
    load_queries(work, 0, 0);
  }

  // Products of one row tile, -inf where a query does not see a key.
  __device__ void multiply(const Work& work, int query_tile, int head_group) {
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[tile][n][e] = 0;
      }
    }
    AttentionProducts<C, kHeadTiles, kTiles>::run(
        acc, q_shared, k_warp, head_dim, min(kHeadTiles, params.group - head_group * kHeadTiles));
    const int warp_begin = work.chunk * kKeys + warp * kWarpKeys;
    if (warp_begin + kWarpKeys <= work.length - work.window) return;
    const int first_seen = work.length - work.window + query_tile * kQueryRows +
                           lane / 4;  // slot of this lane's first query
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = warp_begin + 8 * n + 2 * (lane % 4) + e % 2;
          if (key >= work.length || key > first_seen + 8 * (e / 2)) acc[tile][n][e] = -INFINITY;
        }
      }
    }
  }

  __device__ void begin(const Work& work) {
    const LayerPointers& layer = launch.layers[work.layer];
    scale = params.scale * kLog2e * (layer.k_scale != nullptr ? layer.k_scale[work.head] : 1.0f);
    used_chunks = (work.length + kKeys - 1) / kKeys;
    unit_stats = params.row_stats +
                 static_cast<int64_t>(work.unit_index) * params.chunks.divisor * tile_step;
  }

  // The chunk's maximum and sum of each row, published for the unit's other blocks.
  __device__ void publish_stats(const Work& work, int row_tile) const {
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          largest = fmaxf(largest, fmaxf(acc[tile][n][2 * half], acc[tile][n][2 * half + 1]));
        }
        largest = row_max(largest) * scale;
        const float shift = softmax_shift(largest);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          sum += exp2_approx(fmaf(acc[tile][n][2 * half], scale, -shift)) +
                 exp2_approx(fmaf(acc[tile][n][2 * half + 1], scale, -shift));
        }
        sum = row_sum(sum);
        if (lane % 4 == 0) {
          shared.warp_stats[warp][16 * tile + 8 * half + lane / 4] = make_float2(largest, sum);
        }
      }
    }
    __syncthreads();
    if (threadIdx.x >= kRows) return;
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, shared.warp_stats[i][threadIdx.x].x);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const float2 stats = shared.warp_stats[i][threadIdx.x];
      if (stats.x != -INFINITY) sum += stats.y * exp2_approx(stats.x - largest);
    }
    store_relaxed(unit_stats + work.chunk * tile_step + row_tile * kRows + threadIdx.x,
                  make_float2(largest, sum));
  }

  // A row's state over every fourth chunk of the unit, from lane % 4 on; waits for chunks that are not published.
  __device__ SoftmaxState read_stats(const float2* stats) const {
    SoftmaxState state;
    for (int base = lane % 4; base < used_chunks; base += 4 * kStatsInFlight) {
      float2 part[kStatsInFlight];
#pragma unroll
      for (int i = 0; i < kStatsInFlight; ++i) {
        const float2* from = stats + (base + 4 * i) * tile_step;
        part[i] = base + 4 * i >= used_chunks ? make_float2(-INFINITY, 0)
                  : kOnce                     ? load_relaxed(from)
                                              : __ldcg(from);
      }
      if (kOnce) {
#pragma unroll
        for (int i = 0; i < kStatsInFlight; ++i)
          wait_until_published(part[i], stats + (base + 4 * i) * tile_step);
      }
      const float before = state.maximum;
#pragma unroll
      for (int i = 0; i < kStatsInFlight; ++i) state.maximum = fmaxf(state.maximum, part[i].x);
      if (before != -INFINITY) state.sum *= exp2_approx(before - state.maximum);
#pragma unroll
      for (int i = 0; i < kStatsInFlight; ++i) {
        if (part[i].x != -INFINITY) state.sum += part[i].y * exp2_approx(part[i].x - state.maximum);
      }
    }
    return state;
  }
  // log2 of each row's weight over its sum to shared.row_bias, four lanes a row.
  __device__ void weigh_rows(const Work& work, int query_tile, int head_group) const {
    for (int row = threadIdx.x / 4; row < kRows; row += kThreads / 4) {
      SoftmaxState state =
          read_stats(unit_stats + (query_tile * head_groups + head_group) * kRows + row);
      __syncwarp();
#pragma unroll
      for (int step = 1; step <= 2; step *= 2) {
        const SoftmaxState other{__shfl_xor_sync(kAllLanes, state.maximum, step),
                                 __shfl_xor_sync(kAllLanes, state.sum, step)};
        state = merge_states(state, other);
      }
      const int query = query_tile * kQueryRows + row % kQueryRows;
      const bool valid =
          head_group * kHeadTiles + row / kQueryRows < params.group && query < work.window;
      const float weight =
          params.peak ? static_cast<float>(query - work.window + 1) * params.inverse_half_life
                      : -log2f(static_cast<float>(work.window));
      if (lane % 4 == 0) {
        shared.row_bias[row] = valid ? weight - log2f(state.sum) - state.maximum : -INFINITY;
      }
    }
  }
  // Takes the weighted products of the group's heads into `largest`, log2 of p * weight of this lane's two queries.
  __device__ void take_largest(Largest& largest) const {
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float bias = shared.row_bias[16 * tile + 8 * half + lane / 4];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            largest[half][n][c] =
                fmaxf(largest[half][n][c], fmaf(acc[tile][n][2 * half + c], scale, bias));
          }
        }
      }
    }
  }

  // F of a chunk's entries, or the scratch that stands for it; a lane an entry of its warp.
  __device__ float* history_row(const Work& of) const {
    return params.out != nullptr
               ? params.out + unit_of(launch, of.unit_index).row * launch.capacity
               : launch.layers[of.layer].scores + history_offset(launch, of.slot, of.head);
  }
  __device__ int lane_key(const Work& of) const {
    return of.chunk * kKeys + warp * kWarpKeys + lane;
  }
  __device__ int previous_of(const Work& of) const {
    return params.previous != nullptr ? __ldg(params.previous + of.job) : 0;
  }
  __device__ float load_history(const Work& of) const {
    const int key = lane_key(of);
    return lane < kWarpKeys && key < previous_of(of) ? __ldcg(history_row(of) + key) : 0.0f;
  }

  // The chunk's result from the statistics of the whole unit. `history` is F of the lane's entry.
  __device__ void finish(const Work& work, float history) {
    float result[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) result[n][0] = result[n][1] = params.peak ? -INFINITY : 0.0f;
    for (int query_tile = 0; query_tile < query_tiles; ++query_tile) {
      Largest largest;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest[0][n][0] = largest[0][n][1] = largest[1][n][0] = largest[1][n][1] = -INFINITY;
      }
      for (int head_group = 0; head_group < head_groups; ++head_group) {
        if (!kOnce) {  // otherwise acc still holds the products
          __syncthreads();
          load_queries(work, query_tile, head_group);
          multiply(work, query_tile, head_group);
        }
        weigh_rows(work, query_tile, head_group);
        __syncthreads();
        take_largest(largest);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          result[n][c] = params.peak
                             ? fmaxf(result[n][c], fmaxf(largest[0][n][c], largest[1][n][c]))
                             : result[n][c] + (exp2f(largest[0][n][c]) + exp2f(largest[1][n][c]));
        }
      }
    }
    store(work, result, history);
  }
  // Reduces over the queries; a lane takes the entry of its own number, so that a warp writes one run.
  __device__ void store(const Work& work, const float (&result)[kTiles][2], float history) const {
    const auto reduce = [&](float a, float b) { return params.peak ? fmaxf(a, b) : a + b; };
    float mine = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float x = reduce_lanes<4, 16>(result[n][c], reduce);
        x = __shfl_sync(kAllLanes, x, lane % 8 / 2);
        if (lane / 8 == n && lane % 2 == c) mine = x;
      }
    }
    const int key = lane_key(work);
    if (lane >= kWarpKeys || key >= work.length) return;
    const int previous = previous_of(work);
    if (params.peak) mine = exp2f(mine);
    if (key < previous) {
      const float decay =
          exp2f(static_cast<float>(previous - work.length) * params.inverse_half_life);
      mine = fmaxf(decay * history, mine);
    }
    history_row(work)[key] = mine;
  }
};

// One row tile, one launch: blocks take chunks by ticket until none is left.
template <typename C, int kHeadTiles, int kTiles>
__global__ void __launch_bounds__(kThreads, 2)
    attention_once_kernel(const __grid_constant__ Params params) {
  using Scorer = ChunkScorer<C, kHeadTiles, kTiles, true>;
  constexpr int kKeys = Scorer::kKeys;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ Shared<Scorer::kRows> shared;
  __shared__ int redo[kMaxChunks];  // chunks that are done again
  Scorer scorer(params, shared, reinterpret_cast<C*>(dynamic_shared));
  uint32_t ticket_ahead = 0;  // of the first thread: taken long before its chunk, and not yet known
  if (threadIdx.x == 0) {
    shared.ticket = skip_empty<kKeys>(params, take_chunk(params));
    ticket_ahead = take_chunk(params);
  }
  __syncthreads();
  if (shared.ticket == kNoWork) return;
  Work work = work_of(params, shared.ticket);
  __syncthreads();
  scorer.load(work);

  int redo_count = 0;
  while (true) {
    scorer.begin(work);
    if (threadIdx.x == 0) {
      shared.ticket = skip_empty<kKeys>(params, ticket_ahead);
      ticket_ahead = take_chunk(params);
    }
    scorer.multiply(work, 0, 0);
    const uint32_t next = shared.ticket;
    Work next_work{};
    if (next != kNoWork) next_work = work_of(params, next);
    scorer.publish_stats(work, 0);
    if (next != kNoWork && next_work.unit_index == work.unit_index) {
      // A chunk of the same unit: nobody may wait before it is published. This one is done again at the end. Tickets of a
      // block ascend, so that it waits for a unit while it holds chunks of later units only, and the first unit that is
      // waited for gets done.
      if (threadIdx.x == 0) redo[redo_count] = work.chunk;
      ++redo_count;
      work = next_work;
      scorer.load(work);
      continue;
    }
    const bool prefetched = redo_count == 0;  // the shared keys and queries are free
    if (next != kNoWork && prefetched) scorer.load(next_work);
    // Nobody else touches it; on its way while the others are waited for.
    float history = scorer.load_history(work);
    while (true) {
      scorer.finish(work, history);
      if (redo_count == 0) break;
      __syncthreads();
      work.chunk = redo[--redo_count];
      history = scorer.load_history(work);
      scorer.load(work);
      scorer.multiply(work, 0, 0);
    }
    if (next == kNoWork) return;
    work = next_work;
    __syncthreads();  // row_bias and, after a chunk was done again, the shared keys are free
    if (!prefetched) scorer.load(work);
  }
}

// Several row tiles: a block a chunk; in one launch with a barrier among the blocks of a unit, or in two.
template <typename C, int kHeadTiles, int kTiles>
__global__ void __launch_bounds__(kThreads, 2)
    attention_tiles_kernel(const __grid_constant__ Params params) {
  using Scorer = ChunkScorer<C, kHeadTiles, kTiles, false>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ Shared<Scorer::kRows> shared;
  Scorer scorer(params, shared, reinterpret_cast<C*>(dynamic_shared));
  uint32_t ticket = blockIdx.x;
  if (params.phases == Phases::kBoth) {
    ticket = take_ticket(params.counters, &shared.ticket);
  }
  const Work work = work_of(params, ticket);
  if (work.chunk * Scorer::kKeys >= work.length) return;
  scorer.load(work);
  scorer.begin(work);
  if (params.phases != Phases::kResult) {
    for (int row_tile = 0; row_tile < scorer.row_tiles; ++row_tile) {
      const int query_tile = row_tile / scorer.head_groups;
      const int head_group = row_tile - query_tile * scorer.head_groups;
      if (row_tile > 0) scorer.load_queries(work, query_tile, head_group);
      scorer.multiply(work, query_tile, head_group);
      scorer.publish_stats(work, row_tile);
      if (row_tile + 1 < scorer.row_tiles) __syncthreads();
    }
    if (params.phases == Phases::kStatistics) return;
  }
  const float history = scorer.load_history(work);
  if (params.phases == Phases::kBoth)
    unit_barrier(params.counters + 1 + work.unit_index, scorer.used_chunks);
  scorer.finish(work, history);
}

template <typename C, int kHeadTiles, int kTiles>
void run(Params params,
         int max_length,
         std::byte* workspace,
         const CudaContext& context,
         cudaStream_t stream) {
  constexpr int kKeys = 8 * kTiles * kWarps, kRows = 16 * kHeadTiles;
  const int chunks = num_parts(max_length, kKeys);
  const int units = params.launch.num_units();
  params.head_groups = num_parts(params.group, kHeadTiles);
  params.query_tiles = num_parts(params.launch.window_size, 16);
  params.chunks = FastDiv(static_cast<uint32_t>(chunks));
  params.total = static_cast<uint32_t>(units * chunks);
  params.counters = reinterpret_cast<uint32_t*>(workspace);
  const size_t counter_bytes =
      (sizeof(uint32_t) * (1 + static_cast<size_t>(units)) + kCounterAlignment - 1) /
      kCounterAlignment * kCounterAlignment;
  params.row_stats = reinterpret_cast<float2*>(workspace + counter_bytes);
  const size_t shared_bytes =
      sizeof(C) * (kRows + kKeys) * static_cast<size_t>(params.launch.head_dim + kPad<C>);
  const auto start = [&](auto* kernel, Phases phases, int blocks) {
    params.phases = phases;
    ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes)));
    kernel<<<blocks, kThreads, shared_bytes, stream>>>(params);
    ZIPAGE_CUDA_CHECK_LAUNCH("attention score");
  };
  const int total = units * chunks;
  const bool one_row_tile = params.head_groups * params.query_tiles == 1;
  if (chunks <= (one_row_tile ? kMaxChunks : max_waiting_blocks(context))) {
    const size_t stats_bytes = static_cast<size_t>(total) * kRows * sizeof(float2);
    ZIPAGE_CUDA_CHECK(cudaMemsetAsync(workspace, one_row_tile ? kUnpublishedByte : 0,
                                      counter_bytes + (one_row_tile ? stats_bytes : 0), stream));
    if (one_row_tile) {
      // As many blocks as fit at a time: they take chunks until none is left.
      start(attention_once_kernel<C, kHeadTiles, kTiles>, Phases::kBoth,
            std::min(total, 2 * context.num_sms));
    } else {
      start(attention_tiles_kernel<C, kHeadTiles, kTiles>, Phases::kBoth, total);
    }
  } else {
    start(attention_tiles_kernel<C, kHeadTiles, kTiles>, Phases::kStatistics, total);
    start(attention_tiles_kernel<C, kHeadTiles, kTiles>, Phases::kResult, total);
  }
}

template <typename C>
void run_tensor_cores(const Params& params,
                      int max_length,
                      std::byte* workspace,
                      const CudaContext& context,
                      cudaStream_t stream) {
  if (params.group > 4) {
    run<C, 8, 2>(params, max_length, workspace, context, stream);
  } else if (params.launch.head_dim > 128) {
    run<C, 4, 2>(params, max_length, workspace, context, stream);
  } else {
    run<C, 4, 4>(params, max_length, workspace, context, stream);
  }
}

void dispatch(const Params& params,
              int max_length,
              std::byte* workspace,
              const CudaContext& context,
              cudaStream_t stream) {
  const Launch& launch = params.launch;
  if (launch.dtype == DType::kBF16 && launch.query_dtype == DType::kBF16) {
    run_tensor_cores<__nv_bfloat16>(params, max_length, workspace, context, stream);
  } else if (launch.dtype == DType::kF16 && launch.query_dtype == DType::kF16) {
    run_tensor_cores<__half>(params, max_length, workspace, context, stream);
  } else if (launch.head_dim > 128) {
    run<float, 4, 1>(params, max_length, workspace, context, stream);
  } else {
    run<float, 4, 2>(params, max_length, workspace, context, stream);
  }
}

void launch_all(AttentionInput input,
                const PagedKvView& kv,
                const AttentionRange& range,
                int32_t max_length,
                float* workspace,
                const CudaContext& context,
                cudaStream_t stream) {
  if (kv.head_dim % 16 != 0 || kv.head_dim > 256) {
    kernel_lacks(input.peak ? "peak_update" : "attention_score", "head_dim", kv.head_dim,
                 "multiples of 16 up to 256");
  }
  if (max_length <= 0) return;
  input.group = kv.num_q_heads / kv.num_kv_heads;
  if (launch_attention_cluster(input, kv, range, context, stream)) return;
  const size_t unit_bytes =
      attention_unit_bytes(max_length, input.group, kv.head_dim, kv.window_size);
  Params params{};
  static_cast<AttentionInput&>(params) = input;
  for_each_launch(kv, range.count, range.layer_begin, range.num_layers, range.capacity, unit_bytes,
                  [&](const Launch& launch) {
                    params.launch = launch;
                    dispatch(params, max_length, reinterpret_cast<std::byte*>(workspace), context,
                             stream);
                  });
}

}  // namespace

size_t attention_unit_bytes(int max_length, int group, int head_dim, int window) {
  // Fewest keys of a chunk and most rows of a tile, whatever the dtype.
  const int keys = head_dim > 128 ? 64 : 128;
  const int rows = num_parts(group, 8) * 128 * num_parts(window, 16);
  return static_cast<size_t>(num_parts(max_length, keys)) * static_cast<size_t>(rows) *
             sizeof(float2) +
         sizeof(uint32_t);
}

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_attention_score(const AttentionScoreArgs& args,
                            const CudaContext& context,
                            cudaStream_t stream) {
  const CompressionBatch& batch = *args.batch;
  AttentionInput input{};
  input.slots = batch.slots;
  input.lengths = batch.lengths;
  input.block_tables = batch.block_tables;
  input.table_stride = batch.block_table_stride;
  input.scale = args.scale;
  input.out = args.score;
  launch_all(input, *args.kv, {batch.num_jobs, args.layer_begin, args.num_layers, args.capacity},
             batch.max_length, args.workspace, context, stream);
}

void launch_peak_update(const PeakUpdateArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream) {
  const PeakUpdateBatch& batch = *args.batch;
  AttentionInput input{};
  input.slots = batch.slots;
  input.lengths = batch.lengths;
  input.previous = batch.previous_lengths;
  input.block_tables = batch.block_tables;
  input.table_stride = batch.block_table_stride;
  input.scale = args.scale;
  input.inverse_half_life = 1.0f / args.half_life;
  input.peak = true;
  input.out = args.scratch;
  launch_all(input, *args.kv, {batch.num_updates, args.layer_begin, args.num_layers, args.capacity},
             batch.max_length, args.workspace, context, stream);
}

}  // namespace zipage
