// Split-KV paged attention for decode (one query token a sequence), bf16, GQA group of at most 8.
//
// Idea: a persistent grid. The KV of the batch is cut into tiles of kTile entries of one (row, KV head), numbered row by
// row and head by head; every warp takes an equal, contiguous run of tiles (flash-decoding with a fixed split), so that
// ragged lengths balance and the launch is the same for any lengths, which CUDA graphs need. A (row, head) whose tiles lie
// within one warp's run is finished by it; otherwise partial (maximum, sum, O) go to the workspace and combine_kernel merges
// them in order, so that the result does not depend on timing.
// Tensor cores: a tile's entries are M (16), the group's queries are N (8): S^T = K Q^T and O^T += V^T P^T, both
// mma.m16n8k16, so that a thread's columns are the same two queries in both.
// Memory: each warp has a ring of kStages K and V tiles in shared memory, filled by cp.async; no warp waits for another.
//
// Cost at 157 rows x 1,720 entries, 8 KV heads, head_dim 128: 1.11 GB, 0.26 ms at 4.27 TB/s; 9 GFLOP.
// Measured (H200, 2026-11-29, script/bench-gpu attention): 0.282 ms, 92 %; 64 rows of 8,192: 0.486 ms, 104 % (part of the
// batch stays in the L2); 16 rows of 1,800: 0.039 ms, 71 %: the launch and combine_kernel cost 5 to 10 us.
// Tried and dropped: TMA loads (DecodeVariant::kTensorCopy, 0.293 ms), 192 KB of stages instead of 128 (0.289-0.314 ms).
#include "backend/cuda/kernels/attention/attention.h"
#include "backend/cuda/kernels/attention/decode.h"
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/tensor_map.h"

namespace zipage {

namespace {

constexpr int kMaxGroup = 8;
constexpr int kManyRows = 96;
constexpr int kFewRows = 4;  // most SMs are free for the kernels that follow
constexpr int kCombineThreads = 256;
constexpr int kCombinePieces = 16;       // of a value, their loads in flight together
constexpr int kStageBytes = 128 * 1024;  // of K and V tiles an SM
constexpr int kTileAlignment = 1024;     // of the swizzle
constexpr int kPrefixAlignment = 64;     // elements of the prefix array in the workspace

struct DecodeParams {
  const bf16* q;  // [T, num_q_heads, head_dim]
  const bf16* k;  // pages of the layer
  const bf16* v;
  bf16* out;  // [T, num_q_heads, head_dim]
  const int32_t* row_begin;
  const int32_t* kv_lens;
  const int32_t* block_tables;
  int32_t* prefix;   // [num_rows + 1] units before each row: workspace, for combine_kernel
  float* partials;   // [workers, 2, group * (head_dim + 2)]
  float scale_log2;  // scale * log2(e)
  int32_t num_rows;
  int32_t block_table_stride;
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t group;    // queries of a KV head
  bool early_next;  // the next kernels may take their places while this one runs
};

// Workers that get units: each at least two, so that no run is empty and short lists make few
// pieces.
__device__ inline int64_t active_workers(int64_t total, int64_t workers) {
  const int64_t most = (total + 1) / 2;
  return most < workers ? most : workers;
}

// A place in the list of units.
struct Cursor {
  int row;
  int head;
  int tile;
  int row_tiles;  // of this row
  // To the next unit; rows without units are skipped. `prefix` is the list's, in shared memory.
  __device__ void advance(const int32_t* prefix, int num_rows, int num_kv_heads) {
    if (++tile < row_tiles) return;
    tile = 0;
    if (++head < num_kv_heads) return;
    head = 0;
    do {
      ++row;
    } while (row < num_rows && prefix[row + 1] == prefix[row]);
    row_tiles = row < num_rows ? (prefix[row + 1] - prefix[row]) / num_kv_heads : 0;
  }
};

__device__ Cursor find_unit(const int32_t* prefix, int num_rows, int num_kv_heads, int unit) {
  int low = 0;
  int high = num_rows;  // prefix[low] <= unit < prefix[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (prefix[middle] <= unit) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int row_tiles = (prefix[low + 1] - prefix[low]) / num_kv_heads;
  const int within = unit - prefix[low];
  return {low, within / row_tiles, within % row_tiles, row_tiles};
}

// Fills prefix[0..num_rows] in shared memory: units before each row. All threads of the block.
template <int kTile, int kThreads>
__device__ void count_units(const DecodeParams& p, int32_t* prefix, int32_t* warp_units) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  int carry = 0;
  for (int first = 0; first < p.num_rows; first += kThreads) {
    const int row = first + thread;
    int units = 0;
    if (row < p.num_rows && p.row_begin[row + 1] - p.row_begin[row] == 1) {
      units = (p.kv_lens[row] + kTile - 1) / kTile * p.num_kv_heads;
    }
    const int inclusive = warp_inclusive_sum(units);
    if (lane == 31) warp_units[warp] = inclusive;
    __syncthreads();
    int before = carry;
    for (int w = 0; w < warp; ++w) before += warp_units[w];
    if (row < p.num_rows) prefix[row] = before + inclusive - units;
    for (int w = 0; w < kThreads / 32; ++w) carry += warp_units[w];
    __syncthreads();
  }
  if (thread == 0) prefix[p.num_rows] = carry;
  __syncthreads();
}

template <int kDim, int kTileEntries, int kNumStages, int kNumWarps, bool kTma>
struct DecodeConfig {
  static constexpr int kHeadDim = kDim;
  static constexpr int kTile = kTileEntries;
  static constexpr int kStages = kNumStages;
  static constexpr int kWarps = kNumWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr bool kUseTma = kTma;
  static constexpr int kTileBytes = kTile * kDim * static_cast<int>(sizeof(bf16));  // K or V

  // From the first multiple of kTileAlignment on; the prefix sums of the rows follow.
  struct Shared {
    std::byte tiles[kWarps][kStages][2][kTileBytes];  // K, V
    uint64_t barriers[kWarps][kStages];               // only with TMA
    int32_t warp_units[32];
    __device__ int32_t* prefix() { return reinterpret_cast<int32_t*>(this + 1); }
  };
  static size_t shared_bytes(int num_rows) {
    return kTileAlignment + sizeof(Shared) + (static_cast<size_t>(num_rows) + 1) * sizeof(int32_t);
  }
};

// The units [begin, end) of one warp: a ring of stages that is filled in their order (load_*), and attention over the tiles
// that have arrived. g = lane / 4 and t = lane % 4 as in mma.cuh.
template <typename Config>
struct WarpRun {
  static constexpr int kDim = Config::kHeadDim;
  static constexpr int kTile = Config::kTile;
  static constexpr int kBlocks = kTile / 16;  // of 16 entries
  static constexpr int kSteps = kDim / 16;
  static constexpr int kUnits = kDim / 8;  // 16-byte units of an entry
  using Tile = SwizzledTile<kDim>;

  const DecodeParams& p;
  const CUtensorMap* k_map;
  const CUtensorMap* v_map;
  const int32_t* prefix;
  const uint32_t ring;      // the warp's tiles
  const uint32_t barriers;  // one a stage
  const int64_t worker;
  const int end;
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  // The lane's part of the addresses that ldmatrix reads.
  const uint32_t k_lane = Tile::lane_part(lane_id() % 16, lane_id() / 16);
  const uint32_t v_lane = Tile::lane_part(lane_id() % 8 + lane_id() / 16 * 8, lane_id() / 8 % 2);

  // Loading.
  Cursor load;
  int load_unit;
  int32_t load_block;
  // The piece at work.
  uint32_t q[kSteps][2];
  float o[kSteps][4];     // O^T: elements 16 s + g + {0, 8}, queries 2 t + {0, 1}
  SoftmaxState state[2];  // of queries 2 t and 2 t + 1
  int kv_len;
  bool from_start;  // the piece starts at entry 0

  __device__ WarpRun(const DecodeParams& params,
                     const CUtensorMap* keys,
                     const CUtensorMap* values,
                     const int32_t* row_prefix,
                     uint32_t tiles,
                     uint32_t stage_barriers,
                     int64_t number,
                     int unit_end)
      : p(params),
        k_map(keys),
        v_map(values),
        prefix(row_prefix),
        ring(tiles),
        barriers(stage_barriers),
        worker(number),
        end(unit_end) {}

  __device__ int32_t table_block(const Cursor& c) const {
    return p.block_tables[static_cast<int64_t>(c.row) * p.block_table_stride +
                          c.tile * kTile / p.block_size];
  }
  __device__ uint32_t k_tile(int stage) const {
    return ring + static_cast<uint32_t>(stage * 2 * Config::kTileBytes);
  }
  __device__ uint32_t v_tile(int stage) const { return k_tile(stage) + Config::kTileBytes; }

  // The first unit to load.
  __device__ void start(const Cursor& first, int unit) {
    load = first;
    load_unit = unit;
    load_block = table_block(load);
  }

  // Starts the copies of the tile at `entry` of the pages.
  __device__ void copy_tile(int stage, int64_t entry) const {
    const uint32_t to = k_tile(stage);
    if constexpr (Config::kUseTma) {
#if __CUDA_ARCH__ >= 900
      if (lane_id() == 0) {
        const uint32_t barrier = barriers + 8 * static_cast<uint32_t>(stage);
        mbarrier_expect(barrier, 2 * Config::kTileBytes);
        tma_load_3d(to, k_map, 0, static_cast<int32_t>(entry), 0, barrier);
        tma_load_3d(to + Config::kTileBytes, v_map, 0, static_cast<int32_t>(entry), 0, barrier);
      }
#endif
    } else {
      const auto* k = reinterpret_cast<const uint4*>(p.k + entry * kDim);
      const auto* v = reinterpret_cast<const uint4*>(p.v + entry * kDim);
#pragma unroll 8
      for (int i = lane_id(); i < kTile * kUnits; i += 32) {
        cp_async_16(to + Tile::offset(i / kUnits, i % kUnits, kTile), k + i);
      }
#pragma unroll 8
      for (int i = lane_id(); i < kTile * kUnits; i += 32) {
        cp_async_16(to + Config::kTileBytes + Tile::offset(i / kUnits, i % kUnits, kTile), v + i);
      }
    }
  }
  // Starts the copy of the next unit into `stage`; past the end only closes the group.
  __device__ void issue(int stage) {
    if (load_unit < end) {
      const int64_t entry =
          (static_cast<int64_t>(load_block) * p.num_kv_heads + load.head) * p.block_size +
          load.tile * kTile % p.block_size;
      copy_tile(stage, entry);
      ++load_unit;
      if (load_unit < end) {
        load.advance(prefix, p.num_rows, p.num_kv_heads);
        load_block = table_block(load);  // used at the next call: its latency is hidden
      }
    }
    if constexpr (!Config::kUseTma) cp_async_commit();
  }
  // Until the oldest copy has arrived, which is that of `stage`.
  __device__ void wait(int stage, [[maybe_unused]] uint32_t parity) const {
    if constexpr (Config::kUseTma) {
#if __CUDA_ARCH__ >= 900
      mbarrier_wait(barriers + 8 * static_cast<uint32_t>(stage), parity);
#endif
    } else {
      cp_async_wait<Config::kStages - 1>();
      __syncwarp();
    }
  }
  // Entries from `valid` on may hold anything, and 0 * NaN is NaN: V there becomes 0.
  __device__ void clear_values(int stage, int valid) const {
    for (int i = lane_id(); i < (kTile - valid) * kUnits; i += 32) {
      store_shared_zero_16(v_tile(stage) + Tile::offset(valid + i / kUnits, i % kUnits, kTile));
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (Config::kUseTma) fence_async_proxy();
#endif
    __syncwarp();
  }

  // Loads the queries of a (row, head) and forgets what was summed.
  __device__ void start_piece(const Cursor& work) {
    from_start = work.tile == 0;
    kv_len = p.kv_lens[work.row];
    const bf16* from =
        p.q +
        (static_cast<int64_t>(p.row_begin[work.row]) * p.num_kv_heads + work.head) * p.group * kDim;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      q[s][0] = q[s][1] = 0;
      if (g < p.group) {
        const bf16* place = from + g * kDim + s * 16 + 2 * t;
        q[s][0] = *reinterpret_cast<const uint32_t*>(place);
        q[s][1] = *reinterpret_cast<const uint32_t*>(place + 8);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) o[s][j] = 0;
    }
    state[0] = state[1] = SoftmaxState{};
  }

  // S^T = K Q^T
  __device__ void multiply_keys(uint32_t tile, float (&s)[kBlocks][4]) const {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[m][j] = 0;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        uint32_t a[4];
        load_matrices(a, tile + (k_lane ^ Tile::step_mask(step)) + Tile::step_part(step, kTile) +
                             m * 16 * Tile::kChunkBytes);
        mma<bf16>(s[m], a, q[step][0], q[step][1]);
      }
    }
  }
  // Scales the scores, -inf from entry `valid` on, and raises the maxima.
  __device__ void scale_scores(int valid, float (&s)[kBlocks][4]) {
    float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int entry = m * 16 + g + (j / 2) * 8;
        s[m][j] = entry < valid ? s[m][j] * p.scale_log2 : -INFINITY;
        tile_max[j % 2] = fmaxf(tile_max[j % 2], s[m][j]);
      }
    }
    float keep[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) keep[j] = state[j].raise(column_max(tile_max[j]));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[step][j] *= keep[j % 2];
    }
  }
  // O^T += V^T P^T, P = 2^(s - maximum)
  __device__ void add_values(uint32_t tile, const float (&s)[kBlocks][4]) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      float e[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        e[j] = exp2_approx(s[m][j] - state[j % 2].maximum);
        state[j % 2].sum += e[j];
      }
      const uint32_t b0 = transpose_matrix(pack_bf16(e[0], e[1]));
      const uint32_t b1 = transpose_matrix(pack_bf16(e[2], e[3]));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
        load_matrices_transposed(a, tile + (v_lane ^ Tile::step_mask(step)) +
                                        Tile::step_part(step, kTile) + m * 16 * Tile::kChunkBytes);
        mma<bf16>(o[step], a, b0, b1);
      }
    }
  }

  // The (row, head) is complete.
  __device__ void store_result(const Cursor& work) const {
    bf16* to = p.out + (static_cast<int64_t>(p.row_begin[work.row]) * p.num_kv_heads + work.head) *
                           p.group * kDim;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int query = 2 * t + j % 2;
        if (query < p.group) {
          to[query * kDim + step * 16 + g + j / 2 * 8] =
              from_float<bf16>(o[step][j] / state[j % 2].sum);
        }
      }
    }
  }
  // Slot 0: a piece that does not start at entry 0; it is the first of this worker. Slot 1: the last one.
  __device__ void store_piece() const {
    float* to = p.partials + (worker * 2 + (from_start ? 1 : 0)) * p.group * (kDim + 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int query = 2 * t + j % 2;
        if (query < p.group) to[query * kDim + step * 16 + g + j / 2 * 8] = o[step][j];
      }
    }
    if (g != 0) return;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int query = 2 * t + j;
      if (query < p.group) {
        to[p.group * kDim + query * 2] = state[j].maximum;
        to[p.group * kDim + query * 2 + 1] = state[j].sum;
      }
    }
  }
  __device__ void finish_piece(const Cursor& work, bool row_done) {
#pragma unroll
    for (int j = 0; j < 2; ++j) state[j].sum = column_sum(state[j].sum);
    if (from_start && row_done) {
      store_result(work);
    } else {
      store_piece();
    }
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    decode_kernel(const DecodeParams p,
                  const __grid_constant__ CUtensorMap k_map,
                  const __grid_constant__ CUtensorMap v_map) {
  constexpr int kStages = Config::kStages;
  extern __shared__ std::byte shared_raw[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(
      shared_raw + (kTileAlignment - shared_address(shared_raw) % kTileAlignment) % kTileAlignment);
  int32_t* prefix = shared.prefix();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t barriers = shared_address(shared.barriers[warp]);

  if constexpr (Config::kUseTma) {
#if __CUDA_ARCH__ >= 900
    if (lane_id() == 0) {
      for (int s = 0; s < kStages; ++s) mbarrier_init(barriers + 8 * s, 1);
      mbarrier_init_fence();
    }
    __syncwarp();
#endif
  }
  if (p.early_next) let_next_kernel_start();
  wait_for_previous_kernel();
  count_units<Config::kTile, Config::kThreads>(p, prefix, shared.warp_units);
  const int64_t total = prefix[p.num_rows];
  if (blockIdx.x == 0) {
    for (int i = static_cast<int>(threadIdx.x); i <= p.num_rows; i += Config::kThreads) {
      p.prefix[i] = prefix[i];
    }
  }
  // Neighbouring workers sit on different SMs, so that few of them still use all.
  const int64_t workers = active_workers(total, static_cast<int64_t>(gridDim.x) * Config::kWarps);
  const int64_t worker = static_cast<int64_t>(warp) * gridDim.x + blockIdx.x;
  const int begin = worker < workers ? static_cast<int>(total * worker / workers) : 0;
  const int end = worker < workers ? static_cast<int>(total * (worker + 1) / workers) : 0;
  if (begin == end) {
    let_next_kernel_start();
    return;
  }

  WarpRun<Config> run(p, &k_map, &v_map, prefix, shared_address(shared.tiles[warp]), barriers,
                      worker, end);
  Cursor work = find_unit(prefix, p.num_rows, p.num_kv_heads, begin);
  run.start(work, begin);
  for (int s = 0; s < kStages; ++s) run.issue(s);
  bool fresh = true;  // the next unit starts a piece
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = begin; unit < end; ++unit) {
    if (fresh) run.start_piece(work);
    run.wait(stage, parity);
    const int valid = run.kv_len - work.tile * Config::kTile;  // entries of this tile, if < kTile
    if (valid < Config::kTile) run.clear_values(stage, valid);
    float s[WarpRun<Config>::kBlocks][4];
    run.multiply_keys(run.k_tile(stage), s);
    run.scale_scores(valid, s);
    run.add_values(run.v_tile(stage), s);
    __syncwarp();  // every lane has read the stage
    run.issue(stage);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
    const bool row_done = work.tile + 1 == work.row_tiles;
    fresh = row_done || unit + 1 == end;
    if (fresh) run.finish_piece(work, row_done);
    if (unit + 1 < end) work.advance(prefix, p.num_rows, p.num_kv_heads);
  }
  let_next_kernel_start();
}

// Adds the pieces of a (row, head) that several workers had, in order. Grid [num_rows,
// num_kv_heads].
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const DecodeParams p, int32_t head_dim, int64_t all_workers) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int32_t before = p.prefix[row];
  const int32_t row_tiles = (p.prefix[row + 1] - before) / p.num_kv_heads;
  const int token = p.row_begin[row];
  if (p.row_begin[row + 1] - token != 1) return;
  bf16* out = p.out + (static_cast<int64_t>(token) * p.num_kv_heads + head) * p.group * head_dim;
  const int values = p.group * head_dim;
  if (row_tiles == 0) {  // a row without entries
    for (int i = static_cast<int>(threadIdx.x); i < values; i += kCombineThreads)
      out[i] = from_float<bf16>(0.0f);
    return;
  }
  const int64_t total = p.prefix[p.num_rows];
  const int64_t workers = active_workers(total, all_workers);
  const int64_t first = before + static_cast<int64_t>(head) * row_tiles;
  const int64_t last = first + row_tiles - 1;
  // Worker w has units [total * w / workers, total * (w + 1) / workers), none of them empty.
  const auto owner = [&](int64_t unit) {
    return static_cast<int>(((unit + 1) * workers - 1) / total);
  };
  const int first_worker = owner(first);
  const int count = owner(last) - first_worker + 1;
  if (count == 1) return;
  const int64_t stride = static_cast<int64_t>(p.group) * (head_dim + 2);
  const auto piece = [&](int i) {
    return p.partials + (static_cast<int64_t>(first_worker + i) * 2 + (i == 0 ? 1 : 0)) * stride;
  };
  __shared__ float maxima[kMaxGroup];
  __shared__ float inverses[kMaxGroup];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int query = static_cast<int>(threadIdx.x) / 32; query < p.group;
       query += kCombineThreads / 32) {
    const int state = values + query * 2;
    float maximum = -INFINITY;
    for (int i = lane_id(); i < count; i += 32) maximum = fmaxf(maximum, piece(i)[state]);
    maximum = warp_max(maximum);
    float sum = 0;
    for (int i = lane_id(); i < count; i += 32) {
      sum += exp2_approx(piece(i)[state] - maximum) * piece(i)[state + 1];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      maxima[query] = maximum;
      inverses[query] = 1 / sum;
    }
  }
  __syncthreads();
  for (int v = static_cast<int>(threadIdx.x); v < values; v += kCombineThreads) {
    const int query = v / head_dim;
    const int state = values + query * 2;
    float sum = 0;
    for (int begin = 0; begin < count; begin += kCombinePieces) {
      float maximum[kCombinePieces];
      float value[kCombinePieces];
#pragma unroll
      for (int i = 0; i < kCombinePieces; ++i) {
        if (begin + i >= count) continue;
        maximum[i] = piece(begin + i)[state];
        value[i] = piece(begin + i)[v];
      }
#pragma unroll
      for (int i = 0; i < kCombinePieces; ++i) {
        if (begin + i < count) sum += exp2_approx(maximum[i] - maxima[query]) * value[i];
      }
    }
    out[v] = from_float<bf16>(sum * inverses[query]);
  }
}

template <typename Config>
void launch_config(const PagedAttentionArgs& args,
                   const DecodeParams& params,
                   const CudaContext& context,
                   cudaStream_t stream) {
  const PagedKvView& kv = *args.kv;
  const size_t shared = Config::shared_bytes(params.num_rows);
  CUtensorMap k_map{};
  CUtensorMap v_map{};
  if constexpr (Config::kUseTma) {
    using Tile = SwizzledTile<Config::kHeadDim>;
    k_map = make_page_map(context, kv, params.k, Tile::kChunkColumns, Config::kTile);
    v_map = make_page_map(context, kv, params.v, Tile::kChunkColumns, Config::kTile);
  }
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(decode_kernel<Config>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared)));
  const bool early = context.early_start();
  ZIPAGE_CUDA_CHECK(
      launch_kernel(decode_kernel<Config>, dim3(static_cast<unsigned>(context.num_sms)),
                    dim3(Config::kThreads), shared, stream, early, params, k_map, v_map));
  ZIPAGE_CUDA_CHECK(launch_kernel(
      combine_kernel,
      dim3(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(kv.num_kv_heads)),
      dim3(kCombineThreads), 0, stream, early, params, kv.head_dim,
      static_cast<int64_t>(context.num_sms) * Config::kWarps));
}

// Bytes of DecodeParams::prefix in the workspace.
size_t prefix_bytes(int32_t num_rows) {
  const size_t elements = static_cast<size_t>(num_rows) + 1;
  return (elements + kPrefixAlignment - 1) / kPrefixAlignment * kPrefixAlignment * sizeof(int32_t);
}

// kStageBytes of stages an SM: enough in flight to cover the latency of memory; more was slower
// (docs/performance.md). Many rows end often, and eight warps hide each other's ends; few rows make
// fewer pieces with four.
template <int kDim>
void launch_dim(const PagedAttentionArgs& args,
                const DecodeParams& params,
                const CudaContext& context,
                cudaStream_t stream,
                DecodeVariant variant) {
  constexpr int kWarps = kDim > 128 ? 2 : 4;
  constexpr int kTile = 32;
  constexpr int kStages =
      kStageBytes / (kWarps * 2 * kTile * kDim * static_cast<int>(sizeof(bf16)));
  if (args.kv->block_size % kTile != 0) {
    return launch_config<DecodeConfig<kDim, kTile / 2, 2 * kStages, kWarps, false>>(
        args, params, context, stream);
  }
  if constexpr (kDim == 128) {
    if (variant == DecodeVariant::kDefault && params.num_rows >= kManyRows)
      variant = DecodeVariant::kEightWarps;
    if (variant == DecodeVariant::kEightWarps) {
      return launch_config<DecodeConfig<kDim, kTile / 2, 2, 8, false>>(args, params, context,
                                                                       stream);
    }
    if (variant == DecodeVariant::kTensorCopy && context.is_hopper()) {
      return launch_config<DecodeConfig<kDim, kTile, kStages, kWarps, true>>(args, params, context,
                                                                             stream);
    }
  }
  launch_config<DecodeConfig<kDim, kTile, kStages, kWarps, false>>(args, params, context, stream);
}

}  // namespace

bool decode_kernel_takes(const PagedAttentionArgs& args) {
  const PagedKvView& kv = *args.kv;
  const int group = kv.num_q_heads / kv.num_kv_heads;
  const bool dim = kv.head_dim == 64 || kv.head_dim == 80 || kv.head_dim == 96 ||
                   kv.head_dim == 128 || kv.head_dim == 256;
  return args.dtype == DType::kBF16 && kv.dtype == DType::kBF16 && group <= kMaxGroup && dim &&
         kv.block_size % 16 == 0 && args.batch->num_rows <= kMaxDecodeRows;
}

size_t decode_workspace_bytes(int32_t max_rows,
                              int32_t num_q_heads,
                              int32_t num_kv_heads,
                              int32_t head_dim,
                              const CudaContext& context) {
  constexpr size_t kMostWarps = 8;
  const auto group = static_cast<size_t>(num_q_heads / num_kv_heads);
  return prefix_bytes(max_rows) + static_cast<size_t>(context.num_sms) * kMostWarps * 2 * group *
                                      (static_cast<size_t>(head_dim) + 2) * sizeof(float);
}

void launch_paged_attention_decode(const PagedAttentionArgs& args,
                                   const CudaContext& context,
                                   cudaStream_t stream,
                                   DecodeVariant variant) {
  const StepBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_rows == 0) return;
  const LayerKvView& layer = kv.layers[args.layer];
  const DecodeParams params{static_cast<const bf16*>(args.q),
                            reinterpret_cast<const bf16*>(layer.k),
                            reinterpret_cast<const bf16*>(layer.v),
                            static_cast<bf16*>(args.out),
                            batch.row_begin,
                            batch.kv_lens,
                            batch.block_tables,
                            static_cast<int32_t*>(args.workspace),
                            reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) +
                                                     prefix_bytes(batch.num_rows)),
                            args.scale * kLog2e,
                            batch.num_rows,
                            batch.block_table_stride,
                            kv.block_size,
                            kv.num_kv_heads,
                            kv.num_q_heads / kv.num_kv_heads,
                            batch.num_rows <= kFewRows};
  const auto launch = [&]<int kDim>() { launch_dim<kDim>(args, params, context, stream, variant); };
  switch (kv.head_dim) {
    case 64:
      return launch.template operator()<64>();
    case 80:
      return launch.template operator()<80>();
    case 96:
      return launch.template operator()<96>();
    case 128:
      return launch.template operator()<128>();
    case 256:
      return launch.template operator()<256>();
    default:
      kernel_lacks("paged_attention", "head_dim", kv.head_dim, "64, 80, 96, 128 or 256 in bf16");
  }
}

}  // namespace zipage
