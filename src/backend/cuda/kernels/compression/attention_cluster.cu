// Attention of the window's queries over all entries on Hopper: bf16, a window of at most 16, at most 4 query heads a KV head.
//
// Idea: the products of a unit (job, layer, KV head) with its 64 rows of queries are as many bytes as its keys, too many for
// the registers of one SM. A cluster of eight blocks holds them, so that K is read once; row sums travel through the
// cluster's shared memory. Each of the 16 warpgroups of a cluster takes every 16th tile of 32 keys (wgmma, queries are M).
// Four warps of each block serve its two warpgroups: one has TMA fill their tiles, on through the next units, so that memory
// stays busy while they multiply, exchange sums and write; one adds up the sums of the cluster; two load queries. Which tile
// belongs to whom depends on the length alone, so that a job's result does not depend on its batch.
//
// Cost of one request of 2,000 entries, 36 layers x 8 KV heads, head_dim 128: 147 MB of K, 0.035 ms at 4.27 TB/s; 4.7 GFLOP.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression, peak_update): one request 0.065 ms, 53 %; ten 0.541 ms, 64 %; eleven
// of 448 to 2,048 entries 0.569 ms, 57 %. 30 clusters are resident; each takes about 6 us a unit of which memory needs 4.
// Tried: queries loaded a unit ahead (no gain, kept for the barrier), a tile multiplied ahead of the exponentials (5 %, kept),
// the next unit looked up early (1 %, kept); handing shared memory on by cluster barriers instead of block barriers (2.5 %
// faster, dropped: racecheck cannot follow it).
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/ptx.cuh"
#include "backend/cuda/kernels/common/wgmma.cuh"
#include "backend/cuda/kernels/compression/attention_cluster.h"
#include "backend/cuda/kernels/compression/units.cuh"
#include "backend/cuda/tensor_map.h"

namespace zipage::compression {
namespace {

constexpr int kBlocks = 8;                          // of a cluster
constexpr int kParts = 2 * kBlocks;                 // warpgroups that share a unit
constexpr int kConsumers = 256;                     // threads of the two warpgroups of a block
constexpr int kThreads = kConsumers + 128;          // and four warps that serve them
[[maybe_unused]] constexpr int kQueryLoaders = 64;  // threads of two of those
constexpr int kRows = 64;                           // 16 queries of 4 heads
constexpr int kWindow = 16;
constexpr int kGroup = 4;
constexpr int kTileKeys = 32;
[[maybe_unused]] constexpr int kKept =
    4;  // tiles whose products a warpgroup holds: 2,048 keys a cluster

struct Params {
  AttentionInput in;
  int32_t units;
  int32_t clusters;
  Launch launch;
  CUtensorMap keys[kMaxLayersPerLaunch];
};

// Shared memory, from the first multiple of 1,024 bytes on.
template <int kDim>
struct Shared {
  static constexpr int kTileBytes = kTileKeys * kDim * 2;
  static constexpr int kStages = 4 * 128 / kDim;  // tiles of a warpgroup
  static constexpr int kQueryBytes = kRows * kDim * 2;
  static constexpr int kTiles = 2 * kQueryBytes;  // after two units' queries: [warpgroup, stage]
  static constexpr int kSums = kTiles + 2 * kStages * kTileBytes;  // [2, kParts, kRows] floats
  static constexpr int kMerge = kSums + 2 * kParts * kRows * 4;    // [warpgroup, warp, 128] floats
  static constexpr int kBias = kMerge + 2 * 4 * 128 * 4;           // [kRows] floats
  static constexpr int kFull = kBias + kRows * 4;                  // [warpgroup, stage] barriers
  static constexpr int kEmpty = kFull + 2 * kStages * 8;
  static constexpr int kSumsFull = kEmpty + 2 * kStages * 8;  // [2] barriers
  static constexpr int kQueriesFull = kSumsFull + 2 * 8;      // [2] barriers
  static constexpr int kQueriesEmpty = kQueriesFull + 2 * 8;
  static constexpr int kBytes = kQueriesEmpty + 2 * 8;
};

struct Job {
  Unit unit;
  int length, slot, window;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Barriers of a block: where the warps of a warpgroup meet (one each), and between the warp that
// weighs rows and both warpgroups.
constexpr int kMeet = 1, kBiasWritten = 3, kBiasRead = 4;
constexpr int kBiasThreads = 32 + kConsumers;

__device__ inline Job job_of(const Params& params, int index) {
  Job job;
  job.unit = unit_of(params.launch, static_cast<uint32_t>(index));
  job.length = __ldg(params.in.lengths + job.unit.job);
  job.slot = __ldg(params.in.slots + job.unit.job);
  job.window = min(params.launch.window_size, job.length);
  return job;
}
// Row r of warp w of a warpgroup is query 4 w + r % 4 of the window and head r / 4 of the group: a
// thread has two heads of one query (rows lane / 4 and 8 more), the lane 16 away the other two.
__device__ inline int query_of(int row) { return row / 16 * 4 + row % 4; }
__device__ inline int head_of(int row) { return row / 4 % 4; }

// Rounds of 16 tiles, one a warpgroup. The products of the last kKept rounds are held; those of the
// rounds before, of a longer job, are computed twice: for the sums, and again for the result.
struct Rounds {
  int tiles, all, twice;
  __device__ explicit Rounds(int length)
      : tiles((length + kTileKeys - 1) / kTileKeys),
        all((tiles + kParts - 1) / kParts),
        twice(max(all - kKept, 0)) {}
};

// The block of the pages in which tile `tile` of a unit lies; 0 past the table.
__device__ inline int32_t block_of_tile(const Params& params, const Unit& unit, int tile) {
  const AttentionInput& in = params.in;
  const auto block = static_cast<int32_t>(
      params.launch.block_size.divide(static_cast<uint32_t>(tile * kTileKeys)));
  return block < in.table_stride
             ? __ldg(in.block_tables + static_cast<int64_t>(unit.job) * in.table_stride + block)
             : 0;
}
// The row of the tensor map at which the tile begins.
__device__ inline int row_of_tile(const Launch& launch, const Unit& unit, int32_t block, int tile) {
  const auto entry = static_cast<uint32_t>(tile * kTileKeys);
  const uint32_t before = launch.block_size.divide(entry) * launch.block_size.divisor;
  return static_cast<int>(
      (static_cast<uint32_t>(block) * launch.heads.divisor + static_cast<uint32_t>(unit.head)) *
          launch.block_size.divisor +
      entry - before);
}

// The warp that has TMA load keys.
template <int kDim>
__device__ void load_tiles(const Params& params, uint32_t shared, int cluster, int rank) {
  using S = Shared<kDim>;
  constexpr int kStages = S::kStages;
  const Launch& launch = params.launch;
  const AttentionInput& in = params.in;
  const int lane = threadIdx.x % 32;
  // A lane looks up the tile of warpgroup lane % 2 in round lane / 2, and so on in steps of 16.
  const auto tile_of = [&](int round) { return round * kParts + lane % 2 * kBlocks + rank; };
  uint32_t loaded[2] = {0, 0};
  Unit unit = unit_of(launch, static_cast<uint32_t>(cluster));
  int length = __ldg(in.lengths + unit.job);
  int32_t first_block = block_of_tile(params, unit, tile_of(lane / 2));
  for (int index = cluster; index < params.units; index += params.clusters) {
    // The next unit is looked up while this one's tiles wait for their places.
    const int next_index = min(index + params.clusters, params.units - 1);
    const Unit next = unit_of(launch, static_cast<uint32_t>(next_index));
    const int next_length = __ldg(in.lengths + next.job);
    const int32_t next_block = block_of_tile(params, next, tile_of(lane / 2));
    const Rounds rounds(length);
    const int steps = rounds.all + rounds.twice;
    for (int begin = 0; begin < steps; begin += 16) {
      const int step = begin + lane / 2;
      const int tile = tile_of(step < rounds.all ? step : step - rounds.all);
      int row = -1;
      if (step < steps && tile < rounds.tiles) {
        const int32_t block =
            step == lane / 2 && step < rounds.all ? first_block : block_of_tile(params, unit, tile);
        row = row_of_tile(launch, unit, block, tile);
      }
      const int count = 2 * min(16, steps - begin);
      for (int i = 0; i < count; ++i) {
        const int from = __shfl_sync(0xffffffffu, row, i);
        if (from < 0) continue;
        const int warpgroup = i % 2;
        const uint32_t n = warpgroup == 0 ? loaded[0]++ : loaded[1]++;
        const uint32_t stage = n % kStages + static_cast<uint32_t>(warpgroup * kStages);
        if (lane == 0) {
          mbarrier_wait(shared + S::kEmpty + 8 * stage, (n / kStages + 1) & 1);
          const uint32_t full = shared + S::kFull + 8 * stage;
          mbarrier_expect(full, S::kTileBytes);
          tma_load_3d(shared + S::kTiles + stage * S::kTileBytes, &params.keys[unit.layer], 0, from,
                      0, full);
        }
        __syncwarp();
      }
    }
    unit = next;
    length = next_length;
    first_block = next_block;
  }
}

// Two warps load the rows of queries, swizzled as TMA would; zeros where there is no
// such head or query. They are a unit ahead: the way from memory takes
// longer than a unit's last step, for which the cluster waits without need of queries.
template <int kDim>
__device__ void load_queries(const Params& params, uint32_t shared, int cluster) {
  using S = Shared<kDim>;
  constexpr int kPieces = kDim / 8;                     // of a row, 16 bytes each
  constexpr int kRowsAtOnce = kQueryLoaders / kPieces;  // 4 or 8
  const Launch& launch = params.launch;
  const int thread = static_cast<int>(threadIdx.x) - (kThreads - kQueryLoaders);
  const int piece = thread % kPieces, first_row = thread / kPieces;
  const int64_t row_bytes = int64_t{launch.num_q_heads} * (kDim * 2);  // of a query, all heads
  uint32_t count = 0;
  for (int index = cluster; index < params.units; index += params.clusters, ++count) {
    const Job job = job_of(params, index);
    const uint32_t turn = count & 1;
    const uint32_t rows = shared + turn * S::kQueryBytes;
    const int oldest = (job.length - job.window) % launch.window_size;
    const std::byte* from = launch.layers[job.unit.layer].queries +
                            (int64_t{job.slot} * launch.window_size * launch.num_q_heads +
                             job.unit.head * params.in.group) *
                                (kDim * 2) +
                            piece * 16;
    mbarrier_wait(shared + S::kQueriesEmpty + 8 * turn, (count / 2 + 1) & 1);
#pragma unroll 1  // few registers; the copies are in flight together all the same
    for (int row = first_row; row < kRows; row += kRowsAtOnce) {
      const int query = query_of(row), head = head_of(row);
      const bool valid = query < job.window && head < params.in.group;
      int ring = valid ? oldest + query : 0;
      if (ring >= launch.window_size) ring -= launch.window_size;
      const uint32_t to = rows + piece / 8 * (kRows * 128) + row * 128 + (piece % 8 ^ row % 8) * 16;
      cp_async_16_or_zero(to, from + ring * row_bytes + (valid ? head * (kDim * 2) : 0), valid);
    }
    cp_async_commit();
    cp_async_wait<0>();
    fence_async_proxy();
    mbarrier_arrive(shared + S::kQueriesFull + 8 * turn);
  }
}

// One warp adds up the sums of all warpgroups of the cluster, in their order, two rows a lane.
template <int kDim, bool kPeak>
__device__ void weigh_rows(const Params& params,
                           unsigned char* memory,
                           uint32_t shared,
                           int cluster) {
  using S = Shared<kDim>;
  const int lane = threadIdx.x % 32;
  float* bias = reinterpret_cast<float*>(memory + S::kBias);
  uint32_t turn = 0, parity = 0;
  for (int index = cluster; index < params.units; index += params.clusters) {
    const Unit unit = unit_of(params.launch, static_cast<uint32_t>(index));
    const int window = min(params.launch.window_size, __ldg(params.in.lengths + unit.job));
    const uint32_t full = shared + S::kSumsFull + 8 * turn;
    if (lane == 0) mbarrier_expect(full, kParts * kRows * 4);
    mbarrier_wait_cluster(full, parity);
    const float* sums = reinterpret_cast<const float*>(memory + S::kSums) + turn * kParts * kRows;
    if (index != cluster) named_barrier_sync(kBiasRead, kBiasThreads);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane + 32 * half;
      float value[kParts], most[4], added[4];  // four short chains, since all wait for this
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        value[i] = sums[i * kRows + row];
        most[i % 4] = i < 4 ? value[i] : fmaxf(most[i % 4], value[i]);
      }
      const float largest = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
      const float shift = softmax_shift(largest);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const float x = exp2_approx(value[i] - shift);
        added[i % 4] = i < 4 ? x : added[i % 4] + x;
      }
      const float sum = (added[0] + added[1]) + (added[2] + added[3]);
      const float weight =
          kPeak ? static_cast<float>(query_of(row) - window + 1) * params.in.inverse_half_life
                : -log2_approx(static_cast<float>(window));
      const bool valid = query_of(row) < window && head_of(row) < params.in.group;
      bias[row] = valid ? weight - shift - log2_approx(sum) : -INFINITY;
    }
    named_barrier_arrive(kBiasWritten, kBiasThreads);
    turn ^= 1;
    if (turn == 0) parity ^= 1;
  }
}

// One of the two warpgroups of a block.
template <int kDim, bool kPeak>
struct Scorer {
  using S = Shared<kDim>;
  const Params& params;
  unsigned char* const memory;
  const uint32_t shared;
  const int rank;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = warpgroup * kBlocks + rank;
  uint32_t stage = 0, parity = 0;  // of the next tile
  uint32_t oldest = 0;             // the stage of the tile that is given back next
  uint32_t turn = 0;               // of the unit: which of the two places of queries and sums

  struct Task : Job {
    int previous;
    float scale;  // of the products, for powers of 2
  };
  Task job;
  float most[2], total[2];  // of the thread's two rows: largest product, sum of exponentials
  float bias[2];            // log2 of a row's weight over its sum
  float acc[kKept][16];

  __device__ Task task_of(int index) const {
    Task task{job_of(params, index), 0, params.in.scale * kLog2e};
    if (params.in.previous != nullptr) task.previous = __ldg(params.in.previous + task.unit.job);
    const float* k_scale = params.launch.layers[task.unit.layer].k_scale;
    if (k_scale != nullptr) task.scale *= __ldg(k_scale + task.unit.head);
    return task;
  }

  __device__ int first_key(int round) const { return (round * kParts + part) * kTileKeys; }

  // Starts sum = queries times the next tile. Where a warpgroup has no tile in a round it
  // multiplies what lies in the next tile's place all the same, and end_product() drops that:
  // products go on behind other work only where no branch lies between them.
  __device__ void begin_product(float (&sum)[16], bool exists) {
    const uint32_t place = static_cast<uint32_t>(warpgroup * S::kStages) + stage;
    if (exists) mbarrier_wait(shared + S::kFull + 8 * place, parity);
    // The same in all lanes, and the compiler is to know it: descriptors live in uniform registers.
    const uint32_t keys = __shfl_sync(0xffffffffu, shared + S::kTiles + place * S::kTileBytes, 0);
    const uint32_t queries = __shfl_sync(0xffffffffu, shared + turn * S::kQueryBytes, 0);
    const uint64_t a = wgmma_operand(queries), b = wgmma_operand(keys);
    const auto at = [](uint64_t operand, int bytes) {  // addresses are in units of 16 bytes
      const auto low = static_cast<uint32_t>(operand) + static_cast<uint32_t>(bytes / 16);
      return operand >> 32 << 32 | low;
    };
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      wgmma(sum, at(a, k / 4 * (kRows * 128) + k % 4 * 32),
            at(b, k / 4 * (kTileKeys * 128) + k % 4 * 32), k != 0);
    }
    wgmma_commit();
    if (exists && ++stage == S::kStages) stage = 0, parity ^= 1;
  }
  // Waits for the oldest product, of the tile of `round`, while kPending younger ones go on; -inf
  // where a query does not see a key, which the keys before the last two rounds' are spared.
  template <int kPending>
  __device__ void end_product(float (&sum)[16], int round, bool exists, bool all_seen = false) {
    wgmma_wait<kPending>();
    pin_registers(sum);
    const uint32_t place = static_cast<uint32_t>(warpgroup * S::kStages) + oldest;
    if (exists && lane == 0) mbarrier_arrive(shared + S::kEmpty + 8 * place);
    if (exists && ++oldest == S::kStages) oldest = 0;
    if (all_seen) return;
    const int first = first_key(round),
              last_seen = job.length - job.window + 4 * warp + lane / 4 % 4;
    if (kPending == 0 && first + kTileKeys <= job.length - job.window) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (first + i / 4 * 8 + lane % 4 * 2 + i % 2 > last_seen) sum[i] = -INFINITY;
    }
  }
  __device__ void multiply(float (&sum)[16], int round) {
    begin_product(sum, true);
    end_product<0>(sum, round, true);
  }

  __device__ void add_to_sums(const float (&sum)[16]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, sum[i / 2 * 4 + 2 * half + i % 2]);
      largest = fmaxf(most[half], largest * job.scale);
      const float shift = softmax_shift(largest);
      float added = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        added += exp2_approx(fmaf(sum[i / 2 * 4 + 2 * half + i % 2], job.scale, -shift));
      total[half] = fmaf(total[half], exp2_approx(most[half] - shift), added);
      most[half] = largest;
    }
  }

  // The last kCount rounds, whose products are held. The tensor cores are one tile ahead of the
  // exponentials.
  template <int kCount>
  __device__ void multiply_last(const Rounds& rounds) {
    const int begin = rounds.all - kCount;
    const bool last = (rounds.all - 1) * kParts + part < rounds.tiles;
    begin_product(acc[0], kCount > 1 || last);
#pragma unroll
    for (int i = 0; i + 1 < kCount; ++i) {
      begin_product(acc[i + 1], i + 2 < kCount || last);
      end_product<1>(acc[i], begin + i, true, i + 2 < kCount);
      add_to_sums(acc[i]);
    }
    end_product<0>(acc[kCount - 1], begin + kCount - 1, last);
    add_to_sums(acc[kCount - 1]);
#pragma unroll
    for (int i = kCount; i < kKept; ++i) {
#pragma unroll
      for (int j = 0; j < 16; ++j) acc[i][j] = 0;  // beyond the length: never written
    }
  }

  // log2 of this part's sums of exponentials goes to all blocks of the cluster.
  __device__ void send_sums() const {
    const uint32_t full = shared + S::kSumsFull + 8 * turn;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = fmaxf(most[half], __shfl_xor_sync(0xffffffffu, most[half], 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float shift = softmax_shift(largest);
      float sum = total[half] * exp2_approx(most[half] - shift);
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float value = shift + log2_approx(sum);
      const int row = 16 * warp + lane / 4 + 8 * half;
      const uint32_t to = shared + S::kSums + ((turn * kParts + part) * kRows + row) * 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int there = lane % 4 + 4 * i;
        cluster_store_async(cluster_address(to, there), value, cluster_address(full, there));
      }
    }
  }

  __device__ void receive_bias(bool is_last_unit) {
    named_barrier_sync(kBiasWritten, kBiasThreads);
    const float* from = reinterpret_cast<const float*>(memory + S::kBias) + 16 * warp + lane / 4;
    bias[0] = from[0];
    bias[1] = from[8];
    if (!is_last_unit) named_barrier_arrive(kBiasRead, kBiasThreads);
  }

  // Halves the number of values a lane has: it keeps one half and gives the other to the lane
  // `step` away, which has the same keys for other rows.
  template <int kCount, bool kMax>
  __device__ void fold(float* value, int step) const {
    const bool high = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float keep = high ? value[kCount + i] : value[i];
      const float give = high ? value[i] : value[kCount + i];
      const float other = __shfl_xor_sync(0xffffffffu, give, step);
      value[i] = kMax ? fmaxf(keep, other) : keep + other;
    }
  }

  __device__ float* result_row() const {
    const Launch& launch = params.launch;
    return params.in.out != nullptr ? params.in.out + job.unit.row * launch.capacity
                                    : launch.layers[job.unit.layer].scores +
                                          history_offset(launch, job.slot, job.unit.head);
  }
  // The entry of a thread in kKept rounds.
  __device__ int entry_of(int first_round) const { return first_key(first_round + warp) + lane; }

  // Writes the entries of rounds [first_round, end_round), of which acc holds the products.
  __device__ void finish(int first_round, int end_round, float history) {
    float value[8 * kKept];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        value[8 * i + j] = fmaxf(fmaf(acc[i][j / 2 * 4 + j % 2], job.scale, bias[0]),
                                 fmaf(acc[i][j / 2 * 4 + j % 2 + 2], job.scale, bias[1]));
      }
    }
    fold<16, true>(value, 16);  // over the heads; the score then sums the queries' exponentials
    if (!kPeak) {
#pragma unroll
      for (int i = 0; i < 16; ++i) value[i] = exp2_approx(value[i]);
    }
    fold<8, kPeak>(value, 8);
    fold<4, kPeak>(value, 4);
    float* merge = reinterpret_cast<float*>(memory + S::kMerge) + warpgroup * (4 * 128);
    float* to = merge + warp * 128 + lane / 8 * 32 + lane / 4 % 2 * 16 + lane % 4 * 2;
    named_barrier_sync(kMeet + warpgroup, 128);  // what was there has been read
    *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
    *reinterpret_cast<float2*>(to + 8) = make_float2(value[2], value[3]);
    named_barrier_sync(kMeet + warpgroup, 128);
    const float* from = merge + warp * 32 + lane;
    float mine;
    if (kPeak) {
      mine = exp2_approx(fmaxf(fmaxf(from[0], from[128]), fmaxf(from[256], from[384])));
    } else {
      mine = (from[0] + from[128]) + (from[256] + from[384]);
    }
    const int key = entry_of(first_round);
    if (key >= job.length || first_round + warp >= end_round) return;
    if (key < job.previous) {
      const auto tokens = static_cast<float>(job.length - job.previous);
      mine = fmaxf(exp2_approx(-tokens * params.in.inverse_half_life) * history, mine);
    }
    result_row()[key] = mine;
  }
  __device__ float load_history(int first_round) const {
    const int key = entry_of(first_round);
    return key < job.previous ? __ldcg(result_row() + key) : 0.0f;
  }

  // The queries have been read for the last time.
  __device__ void release_queries() const {
    if (lane == 0) mbarrier_arrive(shared + S::kQueriesEmpty + 8 * turn);
  }

  // `job`, the `count`th unit of the cluster, `index`.
  __device__ void score(uint32_t count, int index) {
    const int next_index = min(index + params.clusters, params.units - 1);
    const bool is_last_unit = index + params.clusters >= params.units;
    turn = count & 1;
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0;
    mbarrier_wait(shared + S::kQueriesFull + 8 * turn, count / 2 & 1);
    const Rounds rounds(job.length);
    for (int round = 0; round < rounds.twice; ++round) {
      multiply(acc[0], round);
      add_to_sums(acc[0]);
    }
    switch (rounds.all - rounds.twice) {
      case 1:
        multiply_last<1>(rounds);
        break;
      case 2:
        multiply_last<2>(rounds);
        break;
      case 3:
        multiply_last<3>(rounds);
        break;
      case kKept:
        multiply_last<kKept>(rounds);
        break;
      default:  // no entries
        break;
    }
    if (rounds.twice == 0) release_queries();
    send_sums();
    const float history = load_history(rounds.twice);
    const Task next = task_of(next_index);  // while sums are on their way
    receive_bias(is_last_unit);
    finish(rounds.twice, rounds.all, history);
#pragma unroll 1
    for (int first = 0; first < rounds.twice; first += kKept) {
      const float older = load_history(first);
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        if (first + i < rounds.twice) multiply(acc[i], first + i);
      }
      finish(first, rounds.twice, older);
    }
    if (rounds.twice > 0) release_queries();
    job = next;
  }
};

#endif

template <int kDim, bool kPeak>
__global__ void __launch_bounds__(kThreads, 2)
    attention_cluster_kernel(const __grid_constant__ Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shared<kDim>;
  extern __shared__ unsigned char shared_raw[];
  const uint32_t raw = shared_address(shared_raw);
  const uint32_t shared = (raw + 1023u) / 1024u * 1024u;
  const int rank = static_cast<int>(blockIdx.x) % kBlocks;
  const auto cluster = static_cast<int>(blockIdx.x) / kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * S::kStages; ++i) {
      mbarrier_init(shared + S::kFull + 8 * i, 1);
      mbarrier_init(shared + S::kEmpty + 8 * i, 4);
    }
    mbarrier_init(shared + S::kSumsFull, 1);
    mbarrier_init(shared + S::kSumsFull + 8, 1);
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(shared + S::kQueriesFull + 8 * i, kQueryLoaders);
      mbarrier_init(shared + S::kQueriesEmpty + 8 * i, kConsumers / 32);
    }
    mbarrier_init_fence();
  }
  cluster_barrier();

  // Two blocks of 384 threads leave 80 registers a thread; the servants give most of theirs away.
  unsigned char* memory = shared_raw + (shared - raw);
  if (threadIdx.x >= kConsumers) {
    set_max_registers_down<32>();
    const int servant = (static_cast<int>(threadIdx.x) - kConsumers) / 32;
    if (servant == 0) {
      load_tiles<kDim>(params, shared, cluster, rank);
    } else if (servant == 1) {
      weigh_rows<kDim, kPeak>(params, memory, shared, cluster);
    } else {
      load_queries<kDim>(params, shared, cluster);
    }
    cluster_barrier();
  } else {
    set_max_registers_up<104>();
    Scorer<kDim, kPeak> scorer{params, memory, shared, rank};
    scorer.job = scorer.task_of(cluster);
    uint32_t count = 0;
    for (int index = cluster; index < params.units; index += params.clusters) {
      scorer.score(count++, index);
    }
    cluster_barrier();  // nobody leaves while others still write here
  }
#endif
}

template <int kDim, bool kPeak>
bool run(Params& params, const CudaContext&, cudaStream_t stream) {
  const auto kernel = attention_cluster_kernel<kDim, kPeak>;
  constexpr size_t kSharedBytes = 1024 + size_t{Shared<kDim>::kBytes};
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(kSharedBytes)));
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kBlocks;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.units * kBlocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  // As many clusters as run at a time; how many depends on how the SMs are grouped.
  int active = 0;
  ZIPAGE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&active, kernel, &config));
  if (active <= 0) return false;
  params.clusters = std::min(active, params.units);
  config.gridDim = dim3(static_cast<unsigned>(params.clusters * kBlocks));
  ZIPAGE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<const Params&>(params)));
  return true;
}

bool takes(const AttentionInput& input, const PagedKvView& kv, const CudaContext& context) {
  return page_map_fits(context, kv) && kv.dtype == DType::kBF16 && kv.query_dtype == DType::kBF16 &&
         (kv.head_dim == 64 || kv.head_dim == 128) && input.group <= kGroup &&
         kv.window_size <= kWindow && kv.block_size % kTileKeys == 0;
}

}  // namespace

bool launch_attention_cluster(const AttentionInput& input,
                              const PagedKvView& kv,
                              const AttentionRange& range,
                              const CudaContext& context,
                              cudaStream_t stream) {
  if (!takes(input, kv, context)) return false;
  Params params{};
  params.in = input;
  bool launched = true;
  for_each_launch(kv, range.count, range.layer_begin, range.num_layers, range.capacity, 1,
                  [&](const Launch& launch) {
                    if (!launched) return;
                    params.launch = launch;
                    params.units = launch.num_units();
                    for (int i = 0; i < launch.num_layers; ++i) {
                      params.keys[i] =
                          make_page_map(context, kv, launch.layers[i].k, 64, kTileKeys);
                    }
                    const bool wide = kv.head_dim == 128;
                    launched = input.peak ? (wide ? run<128, true>(params, context, stream)
                                                  : run<64, true>(params, context, stream))
                                          : (wide ? run<128, false>(params, context, stream)
                                                  : run<64, false>(params, context, stream));
                  });
  return launched;
}

}  // namespace zipage::compression
