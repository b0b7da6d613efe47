// Attention of the last queries over all entries: the score of a compression (Alg. 1) and peak
// attention F (method.md 3.2). A block holds the keys of one chunk of a unit in shared memory and
// their products with the window's queries in registers; it publishes each row's maximum and sum,
// waits for the others of the unit, and finishes: K is read once. While it waits, the keys of its
// next chunk are on their way. attention_cluster.cu does the same on Hopper for the usual shapes.
#include "backend/cuda/kernels/compression/attention_cluster.h"
#include "backend/cuda/kernels/compression/common.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kNoWork = 0xffffffffu;
constexpr int kMaxChunks = 128;  // of a unit whose blocks wait for each other
constexpr float kLog2E = 1.4426950408889634f;

struct Params : AttentionInput {
  Launch launch;
  float2* row_stats;    // [unit, chunk, row tile, rows of a tile] maximum and sum of exponentials
  uint32_t* counters;   // tickets; then one of each unit, for the kernel of several row tiles
  uint32_t total;       // chunks of all units
  FastDiv chunks;       // of a unit
  int32_t head_groups;  // row tiles that cover the group's heads
  int32_t query_tiles;  // ceil(window / 16)
  int32_t phases;       // 1: row statistics, 2: result, 3: both, with the barrier
};

template <typename C>
__device__ constexpr int kPad = 16 / static_cast<int>(sizeof(C));  // rows start 16 bytes apart

// acc[tile, n, :] = q rows times the warp's keys, in the layout of an m16n8 accumulator: element e
// is row 16 * tile + lane / 4 + 8 * (e / 2), key 8 * n + 2 * (lane % 4) + e % 2.
template <typename C, int kHeadTiles, int kTiles>
struct Products {
  __device__ static void run(
      float (&acc)[kHeadTiles][kTiles][4], const C* q, const C* k, int head_dim, int tiles) {
    const int lane = threadIdx.x % 32;
    const int stride = head_dim + kPad<C>;
    const C* q_lane = q + (lane & 15) * stride + (lane >> 4) * 8;
    const C* k_lane = k + ((lane & 7) + ((lane >> 4) << 3)) * stride + ((lane >> 3) & 1) * 8;
#pragma unroll 1
    for (int depth = 0; depth < head_dim; depth += 16) {
      uint32_t b[(kTiles + 1) / 2][4];
#pragma unroll
      for (int i = 0; i < (kTiles + 1) / 2; ++i)
        load_matrices(b[i], k_lane + i * 16 * stride + depth);
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        if (tile < tiles) {
          uint32_t a[4];
          load_matrices(a, q_lane + tile * 16 * stride + depth);
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            multiply_add<C>(acc[tile][n], a, b[n / 2][(n % 2) * 2], b[n / 2][(n % 2) * 2 + 1]);
          }
        }
      }
    }
  }
};

template <int kHeadTiles, int kTiles>
struct Products<float, kHeadTiles, kTiles> {
  __device__ static void run(float (&acc)[kHeadTiles][kTiles][4],
                             const float* q,
                             const float* k,
                             int head_dim,
                             int tiles) {
    const int lane = threadIdx.x % 32;
    const int stride = head_dim + kPad<float>;
    const float* q_lane = q + (lane / 4) * stride;
    const float* k_lane = k + 2 * (lane % 4) * stride;
    for (int depth = 0; depth < head_dim; depth += 4) {
      float4 b[kTiles][2];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          b[n][c] = *reinterpret_cast<const float4*>(k_lane + (8 * n + c) * stride + depth);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        if (tile < tiles) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float4 a =
                *reinterpret_cast<const float4*>(q_lane + (16 * tile + 8 * half) * stride + depth);
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                float& sum = acc[tile][n][2 * half + c];
                sum = fmaf(a.x, b[n][c].x, sum);
                sum = fmaf(a.y, b[n][c].y, sum);
                sum = fmaf(a.z, b[n][c].z, sum);
                sum = fmaf(a.w, b[n][c].w, sum);
              }
            }
          }
        }
      }
    }
  }
};

template <typename C>
__device__ inline void load_row_part(
    C* to, const std::byte* base, DType, int64_t element, bool valid) {
  copy16_async(to, base + element * static_cast<int64_t>(sizeof(C)), valid);
}
template <>
__device__ inline void load_row_part<float>(
    float* to, const std::byte* base, DType dtype, int64_t element, bool valid) {
  *reinterpret_cast<float4*>(to) = valid ? load4(base, dtype, element) : make_float4(0, 0, 0, 0);
}

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

// The tickets of a kOnce kernel begin with all bits set, as all of its workspace.
template <bool kOnce>
__device__ inline uint32_t take_chunk(const Params& params) {
  return atomicAdd(params.counters, 1u) + (kOnce ? 1u : 0u);
}
// `ticket`, or the next one of a chunk that has keys.
template <int kKeys, bool kOnce>
__device__ uint32_t skip_empty(const Params& params, uint32_t ticket) {
  while (true) {
    if (ticket >= params.total) return kNoWork;
    const uint32_t unit_index = params.chunks.divide(ticket);
    const int begin = static_cast<int>(ticket - unit_index * params.chunks.divisor) * kKeys;
    if (begin < __ldg(params.lengths + unit_of(params.launch, unit_index).job)) return ticket;
    ticket = take_chunk<kOnce>(params);
  }
}

// Row statistics travel between the blocks of a unit without a fence: each is one store of 8 bytes,
// and whoever needs it reads until it is no longer what the launch began with, all bits set. No
// maximum has those bits: what fmaxf() makes of NaN is 0x7fffffff.
constexpr int kUnpublishedByte = 0xff;
__device__ inline void publish(float2* to, float2 stats) {
  const uint64_t bits = static_cast<uint64_t>(__float_as_uint(stats.y)) << 32 |
                        static_cast<uint64_t>(__float_as_uint(stats.x));
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(bits) : "memory");
}
__device__ inline float2 read_published(const float2* from) {
  uint64_t bits;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(from) : "memory");
  return make_float2(__uint_as_float(static_cast<uint32_t>(bits)),
                     __uint_as_float(static_cast<uint32_t>(bits >> 32)));
}
__device__ inline bool is_published(float2 stats) { return __float_as_uint(stats.x) != ~0u; }

// kOnce: the window and the group are one row tile, and one launch does all: acc is computed once.
template <typename C, int kHeadTiles, int kTiles, bool kOnce>
__global__ void __launch_bounds__(kThreads, 2)
    attention_kernel(const __grid_constant__ Params params) {
  constexpr int kRows = 16 * kHeadTiles;  // of a row tile: head * 16 + query
  constexpr int kWarpKeys = 8 * kTiles;
  constexpr int kKeys = kWarpKeys * kWarps;
  constexpr int kPart = 16 / static_cast<int>(sizeof(C));  // elements of a 16-byte piece
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ float2 warp_stats[kWarps][kRows];
  __shared__ float row_bias[kRows];
  __shared__ uint32_t shared_ticket;
  __shared__ int redo[kMaxChunks];

  const Launch& launch = params.launch;
  const int head_dim = launch.head_dim;
  const int stride = head_dim + kPad<C>;
  const int parts = head_dim / kPart;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  C* q_shared = reinterpret_cast<C*>(dynamic_shared);
  C* k_warp = q_shared + kRows * stride + warp * kWarpKeys * stride;
  const int head_groups = kOnce ? 1 : params.head_groups;
  const int query_tiles = kOnce ? 1 : params.query_tiles;
  const int row_tiles = query_tiles * head_groups;
  const int phases = kOnce ? 3 : params.phases;

  const auto load_queries = [&](const Work& work, int query_tile, int head_group) {
    const std::byte* queries = launch.layers[work.layer].queries;
    const int64_t slot_row = static_cast<int64_t>(work.slot) * launch.window_size;
    // Each row by the threads of one half-warp, so that no division is needed.
    for (int row = threadIdx.x / 16; row < kRows; row += kThreads / 16) {
      const int head = head_group * kHeadTiles + row / 16;
      const int query = query_tile * 16 + row % 16;  // of the window
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
  };
  const auto load_keys = [&](const Work& work) {
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
      const int64_t offset = __shfl_sync(0xffffffffu, lane_offset, key & 31);
      if (key < kWarpKeys) {
        load_row_part<C>(k_warp + key * stride + part * kPart, keys, launch.dtype,
                         offset + part * kPart, warp_begin + key < work.length);
      }
      part += 32;
      while (part >= parts) part -= parts, ++key;
    }
  };

  float acc[kHeadTiles][kTiles][4];
  // Products of one row tile, -inf where a query does not see a key.
  const auto compute = [&](const Work& work, int query_tile, int head_group) {
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[tile][n][e] = 0;
      }
    }
    Products<C, kHeadTiles, kTiles>::run(acc, q_shared, k_warp, head_dim,
                                         min(kHeadTiles, params.group - head_group * kHeadTiles));
    const int warp_begin = work.chunk * kKeys + warp * kWarpKeys;
    if (warp_begin + kWarpKeys <= work.length - work.window) return;
    const int first_seen =
        work.length - work.window + query_tile * 16 + lane / 4;  // slot of this lane's first query
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
  };

  uint32_t ticket = blockIdx.x;
  uint32_t ticket_ahead = 0;  // of the first thread: taken long before its chunk, and not yet known
  if (phases == 3) {
    if (threadIdx.x == 0) {
      shared_ticket = skip_empty<kKeys, kOnce>(params, take_chunk<kOnce>(params));
      if (kOnce) ticket_ahead = take_chunk<kOnce>(params);
    }
    __syncthreads();
    ticket = shared_ticket;
    if (ticket == kNoWork) return;
    __syncthreads();
  }
  Work work = work_of(params, ticket);
  if (work.chunk * kKeys >= work.length) return;
  load_keys(work);
  load_queries(work, 0, 0);

  // F of a chunk's entries, or the scratch that stands for it; a lane an entry of its warp.
  const auto history_row = [&](const Work& of) {
    return params.out != nullptr
               ? params.out + unit_of(launch, of.unit_index).row * launch.capacity
               : launch.layers[of.layer].scores + history_offset(launch, of.slot, of.head);
  };
  const auto lane_key = [&](const Work& of) { return of.chunk * kKeys + warp * kWarpKeys + lane; };
  const auto previous_of = [&](const Work& of) {
    return params.previous != nullptr ? __ldg(params.previous + of.job) : 0;
  };
  const auto load_history = [&](const Work& of) {
    const int key = lane_key(of);
    return lane < kWarpKeys && key < previous_of(of) ? __ldcg(history_row(of) + key) : 0.0f;
  };

  int redo_count = 0;
  while (true) {
    const LayerPointers& layer = launch.layers[work.layer];
    const float scale =
        params.scale * kLog2E * (layer.k_scale != nullptr ? layer.k_scale[work.head] : 1.0f);
    const int used_chunks = (work.length + kKeys - 1) / kKeys;
    const int64_t tile_step =
        static_cast<int64_t>(row_tiles) * kRows;  // of row_stats, from chunk to chunk
    float2* unit_stats = params.row_stats +
                         static_cast<int64_t>(work.unit_index) * params.chunks.divisor * tile_step;
    uint32_t next = kNoWork;
    Work next_work{};
    if (kOnce && threadIdx.x == 0) {
      shared_ticket = skip_empty<kKeys, kOnce>(params, ticket_ahead);
      ticket_ahead = take_chunk<kOnce>(params);
    }

    if ((phases & 1) != 0) {
      for (int row_tile = 0; row_tile < row_tiles; ++row_tile) {
        const int query_tile = row_tile / head_groups;
        const int head_group = row_tile - query_tile * head_groups;
        if (row_tile > 0) load_queries(work, query_tile, head_group);
        compute(work, query_tile, head_group);
        if (kOnce) {
          next = shared_ticket;
          if (next != kNoWork) next_work = work_of(params, next);
        }
#pragma unroll
        for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float largest = -INFINITY;
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
              largest = fmaxf(largest, fmaxf(acc[tile][n][2 * half], acc[tile][n][2 * half + 1]));
            }
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            largest *= scale;
            const float shift = largest == -INFINITY ? 0.0f : largest;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
              sum += exp2_approx(fmaf(acc[tile][n][2 * half], scale, -shift)) +
                     exp2_approx(fmaf(acc[tile][n][2 * half + 1], scale, -shift));
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (lane % 4 == 0)
              warp_stats[warp][16 * tile + 8 * half + lane / 4] = make_float2(largest, sum);
          }
        }
        __syncthreads();
        if (threadIdx.x < kRows) {
          float largest = -INFINITY;
#pragma unroll
          for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, warp_stats[i][threadIdx.x].x);
          float sum = 0;
#pragma unroll
          for (int i = 0; i < kWarps; ++i) {
            const float2 stats = warp_stats[i][threadIdx.x];
            if (stats.x != -INFINITY) sum += stats.y * exp2_approx(stats.x - largest);
          }
          publish(unit_stats + work.chunk * tile_step + row_tile * kRows + threadIdx.x,
                  make_float2(largest, sum));
        }
        if (row_tile + 1 < row_tiles) __syncthreads();
      }
    }
    if (kOnce) {
      if (next != kNoWork && next_work.unit_index == work.unit_index) {
        // A chunk of the same unit: nobody may wait before it is published. This one is done again
        // at the end. Tickets of a block ascend, so that it waits for a unit while it holds chunks
        // of later units only, and the first unit that is waited for gets done.
        if (threadIdx.x == 0) redo[redo_count] = work.chunk;
        ++redo_count;
        work = next_work;
        load_keys(work);
        load_queries(work, 0, 0);
        continue;
      }
      if (next != kNoWork && redo_count == 0) {  // the shared keys and queries are free
        load_keys(next_work);
        load_queries(next_work, 0, 0);
      }
    }
    // Nobody else touches it; on its way while the others are waited for.
    float history = (phases & 2) != 0 ? load_history(work) : 0.0f;
    if (!kOnce && phases == 3) unit_barrier(params.counters + 1 + work.unit_index, used_chunks);
    if ((phases & 2) == 0) return;

    const bool prefetched = redo_count == 0;
    while (true) {
      float result[kTiles][2];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) result[n][0] = result[n][1] = params.peak ? -INFINITY : 0.0f;
      for (int query_tile = 0; query_tile < query_tiles; ++query_tile) {
        float largest[2][kTiles]
                     [2];  // log2 of p * weight, over the group's heads, of this lane's two queries
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          largest[0][n][0] = largest[0][n][1] = largest[1][n][0] = largest[1][n][1] = -INFINITY;
        }
        for (int head_group = 0; head_group < head_groups; ++head_group) {
          if (!kOnce) {  // otherwise acc still holds the products
            __syncthreads();
            load_queries(work, query_tile, head_group);
            compute(work, query_tile, head_group);
          }
          // Four lanes a row, each with every fourth chunk.
          for (int row = threadIdx.x / 4; row < kRows; row += kThreads / 4) {
            const float2* stats =
                unit_stats + (query_tile * head_groups + head_group) * kRows + row;
            float most = -INFINITY, sum = 0;
            for (int base = lane % 4; base < used_chunks; base += 16) {
              float2 part[4];
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                const float2* from = stats + (base + 4 * i) * tile_step;
                part[i] = base + 4 * i >= used_chunks ? make_float2(-INFINITY, 0)
                          : kOnce                     ? read_published(from)
                                                      : __ldcg(from);
              }
              if (kOnce) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                  while (!is_published(part[i])) {
                    __nanosleep(20);
                    part[i] = read_published(stats + (base + 4 * i) * tile_step);
                  }
                }
              }
              const float before = most;
#pragma unroll
              for (int i = 0; i < 4; ++i) most = fmaxf(most, part[i].x);
              if (before != -INFINITY) sum *= exp2_approx(before - most);
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                if (part[i].x != -INFINITY) sum += part[i].y * exp2_approx(part[i].x - most);
              }
            }
            __syncwarp();
#pragma unroll
            for (int step = 1; step <= 2; step <<= 1) {
              const float other = __shfl_xor_sync(0xffffffffu, most, step);
              const float other_sum = __shfl_xor_sync(0xffffffffu, sum, step);
              const float both = fmaxf(most, other);
              sum = (most != -INFINITY ? sum * exp2_approx(most - both) : 0.0f) +
                    (other != -INFINITY ? other_sum * exp2_approx(other - both) : 0.0f);
              most = both;
            }
            const int query = query_tile * 16 + row % 16;
            const bool valid =
                head_group * kHeadTiles + row / 16 < params.group && query < work.window;
            const float weight =
                params.peak ? static_cast<float>(query - work.window + 1) * params.inverse_half_life
                            : -log2f(static_cast<float>(work.window));
            if (lane % 4 == 0) row_bias[row] = valid ? weight - log2f(sum) - most : -INFINITY;
          }
          __syncthreads();
#pragma unroll
          for (int tile = 0; tile < kHeadTiles; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float bias = row_bias[16 * tile + 8 * half + lane / 4];
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

      // A lane takes the entry of its own number, so that a warp writes one run.
      float mine = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float x = result[n][c];
#pragma unroll
          for (int step = 4; step <= 16; step <<= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, x, step);
            x = params.peak ? fmaxf(x, other) : x + other;
          }
          x = __shfl_sync(0xffffffffu, x, lane % 8 / 2);
          if (lane / 8 == n && lane % 2 == c) mine = x;
        }
      }
      const int key = lane_key(work);
      if (lane < kWarpKeys && key < work.length) {
        const int previous = previous_of(work);
        if (params.peak) mine = exp2f(mine);
        if (key < previous) {
          const float decay =
              exp2f(static_cast<float>(previous - work.length) * params.inverse_half_life);
          mine = fmaxf(decay * history, mine);
        }
        history_row(work)[key] = mine;
      }

      if (redo_count == 0) break;
      __syncthreads();
      work.chunk = redo[--redo_count];
      history = load_history(work);
      load_keys(work);
      load_queries(work, 0, 0);
      compute(work, 0, 0);
    }
    if (!kOnce || next == kNoWork) return;
    work = next_work;
    __syncthreads();  // row_bias and, after a chunk was done again, the shared keys are free
    if (!prefetched) {
      load_keys(work);
      load_queries(work, 0, 0);
    }
  }
}

template <typename C, int kHeadTiles, int kTiles>
void run(Params params,
         int max_length,
         std::byte* workspace,
         const CudaContext& context,
         cudaStream_t stream) {
  constexpr int kKeys = 8 * kTiles * kWarps, kRows = 16 * kHeadTiles;
  const int chunks = ceil_div(max_length, kKeys);
  const int units = params.launch.num_units();
  params.head_groups = ceil_div(params.group, kHeadTiles);
  params.query_tiles = ceil_div(params.launch.window_size, 16);
  params.chunks = FastDiv(static_cast<uint32_t>(chunks));
  params.total = static_cast<uint32_t>(units * chunks);
  params.counters = reinterpret_cast<uint32_t*>(workspace);
  const size_t counter_bytes =
      (sizeof(uint32_t) * (1 + static_cast<size_t>(units)) + 255) / 256 * 256;
  params.row_stats = reinterpret_cast<float2*>(workspace + counter_bytes);
  const size_t shared_bytes =
      sizeof(C) * (kRows + kKeys) * static_cast<size_t>(params.launch.head_dim + kPad<C>);
  const auto start = [&](auto* kernel, int phases, int blocks) {
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
      start(attention_kernel<C, kHeadTiles, kTiles, true>, 3, std::min(total, 2 * context.num_sms));
    } else {
      start(attention_kernel<C, kHeadTiles, kTiles, false>, 3, total);
    }
  } else {
    start(attention_kernel<C, kHeadTiles, kTiles, false>, 1, total);
    start(attention_kernel<C, kHeadTiles, kTiles, false>, 2, total);
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
  const int rows = ceil_div(group, 8) * 128 * ceil_div(window, 16);
  return static_cast<size_t>(ceil_div(max_length, keys)) * static_cast<size_t>(rows) *
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
