// Paged attention of prefill chunks, bf16: the queries of a chunk over cached and new keys (causal).
//
// Idea: FlashAttention-2 over pages. A block takes a tile of queries of one (row, KV head); the queries of a GQA group are
// packed, query m of the row being token m / group, head m % group, so that short chunks fill the tile too, and each warp
// has kBlocks x 16 of them. Keys and values pass through two stages of shared memory in tiles of 64 entries (cp.async: K of
// the next tile arrives while this one's softmax runs, V while its S is computed), with an online softmax in f32.
// Tensor cores: S = Q K^T and O += P V, both mma.m16n8k16 with the queries as M; P stays in registers.
//
// Cost at 8,192 tokens of 8,192, 32 query heads, head_dim 128: 0.55 TFLOP, 0.77 ms at 710 TFLOP/s (168 MB, 0.04 ms).
// Measured (H200, 2026-11-29, script/bench-gpu attention): 2.081 ms, 264 TFLOP/s, 37 %; 2,048 of 8,192: 1.012 ms, 33 %;
// 2,048 of 2,048: 0.228 ms, 21 %.
// Not tried: wgmma with TMA, which should give twice as much. Four warps or eight: eight read the keys half as often and
// win from rows of 16 tiles on; short rows fill four better.
#include "backend/cuda/kernels/attention/prefill.h"
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

namespace {

constexpr int kKeys = 64;             // entries of a tile
constexpr int kTileAlignment = 1024;  // of the swizzle
constexpr int kLongRowTiles = 16;     // from so many tiles of a row on, eight warps

struct PrefillParams {
  const bf16* q;  // [T, num_q_heads, head_dim]
  const bf16* k;
  const bf16* v;
  bf16* out;
  const int32_t* row_begin;
  const int32_t* kv_lens;
  const int32_t* block_tables;
  float scale_log2;
  int32_t num_rows;
  int32_t block_table_stride;
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t group;
  bool skip_single;
};

// kNumWarps warps of kNumBlocks 16-query tiles each.
template <int kDim, int kNumWarps, int kNumBlocks>
struct PrefillShape {
  static constexpr int kHeadDim = kDim;
  static constexpr int kWarps = kNumWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = kNumBlocks;
  static constexpr int kQueries = kWarps * 16 * kBlocks;
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(bf16));
  // Two blocks an SM where they fit.
  static constexpr int kPerSm = kDim > 128 || kWarps > 4 ? 1 : 2;
  // From the first multiple of kTileAlignment on.
  struct Shared {
    std::byte q[kQueries * kRowBytes];
    std::byte k[2][kKeys * kRowBytes];
    std::byte v[2][kKeys * kRowBytes];
  };
  static constexpr size_t kSharedBytes = kTileAlignment + sizeof(Shared);
};

struct QueryTile {
  int row;    // -1: none
  int first;  // query of the row
};

// The `index`-th tile of queries over all rows. One warp; the result is the same in every lane.
__device__ QueryTile find_tile(const PrefillParams& p, int queries, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int first = 0; first < p.num_rows; first += 32) {
    const int row = first + lane;
    int tiles = 0;
    if (row < p.num_rows) {
      const int tokens = p.row_begin[row + 1] - p.row_begin[row];
      if (!(p.skip_single && tokens == 1)) tiles = (tokens * p.group + queries - 1) / queries;
    }
    const int inclusive = warp_inclusive_sum(tiles);
    const unsigned found = __ballot_sync(0xffffffffu, before + inclusive > index);
    if (found != 0) {
      const int source = __ffs(static_cast<int>(found)) - 1;
      const int start = before + __shfl_sync(0xffffffffu, inclusive - tiles, source);
      return {first + source, (index - start) * queries};
    }
    before += __shfl_sync(0xffffffffu, inclusive, 31);
  }
  return {-1, 0};
}

// What a block works on: queries [first, last_query] of a row for one KV head.
struct Work {
  int row;
  int head;
  int first;
  int last_query;
  int first_token;
  int context;  // token j of the row sees entries < context + j + 1
  int fewest;   // entries that the first query sees
  int most;     // and the last one
  int num_heads;
  bool aligned;  // a tile of keys lies in one block
  const int32_t* table;
  __device__ Work(const PrefillParams& p, const QueryTile& tile, int queries, int kv_head)
      : row(tile.row),
        head(kv_head),
        first(tile.first),
        first_token(p.row_begin[tile.row]),
        num_heads(p.num_kv_heads * p.group),
        aligned(p.block_size % kKeys == 0),
        table(p.block_tables + static_cast<int64_t>(tile.row) * p.block_table_stride) {
    const int row_tokens = p.row_begin[row + 1] - first_token;
    last_query = min(first + queries, row_tokens * p.group) - 1;
    context = p.kv_lens[row] - row_tokens;
    fewest = context + first / p.group + 1;
    most = context + last_query / p.group + 1;
  }
  __device__ int tiles() const { return (most + kKeys - 1) / kKeys; }
  // Where query m of the row lies in q and out.
  __device__ int64_t query_place(const PrefillParams& p, int m, int dim) const {
    return ((static_cast<int64_t>(first_token) + m / p.group) * num_heads + head * p.group +
            m % p.group) *
           dim;
  }
  // Where entry `index` lies in the pages.
  __device__ int64_t entry_place(const PrefillParams& p, int index, int dim) const {
    return ((static_cast<int64_t>(table[index / p.block_size]) * p.num_kv_heads + head) *
                p.block_size +
            index % p.block_size) *
           dim;
  }
};

// Starts the copy of the tile's queries; zeros past the last one.
template <typename Shape>
__device__ void load_queries(const PrefillParams& p, const Work& work, uint32_t to) {
  using Tile = SwizzledTile<Shape::kHeadDim>;
  constexpr int kUnits = Shape::kHeadDim / 8;  // 16-byte units of a row
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kQueries * kUnits; i += Shape::kThreads) {
    const int m = work.first + i / kUnits;
    const bool exists = m <= work.last_query;
    cp_async_16_or_zero(
        to + Tile::offset(i / kUnits, i % kUnits, Shape::kQueries),
        p.q + work.query_place(p, exists ? m : work.first, Shape::kHeadDim) + i % kUnits * 8,
        exists);
  }
}

// Starts the copy of tile `index` of keys or values; zeros past the last entry that a query sees.
template <typename Shape>
__device__ void load_tile(
    const PrefillParams& p, const Work& work, const bf16* pages, uint32_t to, int index) {
  constexpr int kDim = Shape::kHeadDim;
  using Tile = SwizzledTile<kDim>;
  constexpr int kUnits = kDim / 8;
  const int first = index * kKeys;
  if (first >= work.most) return;
  const bf16* base = nullptr;
  if (work.aligned) base = pages + work.entry_place(p, first, kDim);
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kUnits; i += Shape::kThreads) {
    const int entry = first + i / kUnits;
    const bool exists = entry < work.most;
    const bf16* from;
    if (work.aligned) {
      from = base + static_cast<int64_t>(i) * 8;
    } else {
      from = pages + work.entry_place(p, exists ? entry : first, kDim) + i % kUnits * 8;
    }
    cp_async_16_or_zero(to + Tile::offset(i / kUnits, i % kUnits, kKeys), from, exists);
  }
}

// A warp's queries, its part of O and of the softmax. A thread has rows g and g + 8 of each block of 16 (j = 0, 1), where
// g = lane / 4 and t = lane % 4.
template <typename Shape>
struct WarpQueries {
  static constexpr int kDim = Shape::kHeadDim;
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr int kQueries = Shape::kQueries;
  using Tile = SwizzledTile<kDim>;
  using Scores = float[kBlocks][kKeys / 8][4];

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  // The lane's part of the addresses that ldmatrix reads.
  const uint32_t q_lane = Tile::lane_part(warp * kBlocks * 16 + lane_id() % 16, lane_id() / 16);
  const uint32_t k_lane = Tile::lane_part(lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2);
  const uint32_t v_lane = Tile::lane_part(lane_id() / 8 % 2 * 8 + lane_id() % 8, lane_id() / 16);
  float o[kBlocks][kDim / 8][4];
  SoftmaxState state[kBlocks][2];
  int visible[kBlocks][2];  // entries the thread's queries see

  __device__ int query_of(const Work& work, int b, int j) const {
    return work.first + (warp * kBlocks + b) * 16 + g + j * 8;
  }
  __device__ void start(const PrefillParams& p, const Work& work) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        visible[b][j] = work.context + min(query_of(work, b, j), work.last_query) / p.group + 1;
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) o[b][n][j] = 0;
      }
    }
  }

  // S = Q K^T
  __device__ void multiply_keys(uint32_t q_tile, uint32_t k_tile, Scores& s) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[b][n][j] = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t a[kBlocks][4];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        load_matrices(a[b], q_tile + (q_lane ^ Tile::step_mask(step)) +
                                Tile::step_part(step, kQueries) + b * 16 * Tile::kChunkBytes);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t keys[4];
        load_matrices(keys, k_tile + (k_lane ^ Tile::step_mask(step)) +
                                Tile::step_part(step, kKeys) + n * 16 * Tile::kChunkBytes);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          mma<bf16>(s[b][2 * n], a[b], keys[0], keys[1]);
          mma<bf16>(s[b][2 * n + 1], a[b], keys[2], keys[3]);
        }
      }
    }
  }
  // -inf where a query of block b does not see an entry of the tile that begins at `first`.
  __device__ void mask(int first, int b, Scores& s) const {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + n * 8 + 2 * t + j % 2 >= visible[b][j / 2]) s[b][n][j] = -INFINITY;
      }
    }
  }
  // Online softmax: the scores of block b become weights.
  __device__ void weigh(float scale_log2, int b, Scores& s) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        tile_max = fmaxf(tile_max, fmaxf(s[b][n][2 * j], s[b][n][2 * j + 1]));
      const float keep = state[b][j].raise(row_max(tile_max) * scale_log2);
      if (__any_sync(kAllLanes, keep != 1)) {  // the maximum settles after a few tiles
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          o[b][n][2 * j] *= keep;
          o[b][n][2 * j + 1] *= keep;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        SoftmaxState& row = state[b][j / 2];
        s[b][n][j] = exp2_approx(fmaf(s[b][n][j], scale_log2, -row.maximum));
        row.sum += s[b][n][j];
      }
    }
  }
  // O += P V
  __device__ void add_values(uint32_t v_tile, const Scores& s) {
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) {
      uint32_t a[kBlocks][4];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        a[b][0] = pack_bf16(s[b][2 * m][0], s[b][2 * m][1]);
        a[b][1] = pack_bf16(s[b][2 * m][2], s[b][2 * m][3]);
        a[b][2] = pack_bf16(s[b][2 * m + 1][0], s[b][2 * m + 1][1]);
        a[b][3] = pack_bf16(s[b][2 * m + 1][2], s[b][2 * m + 1][3]);
      }
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t values[4];
        load_matrices_transposed(values, v_tile + (v_lane ^ Tile::step_mask(n)) +
                                             Tile::step_part(n, kKeys) +
                                             m * 16 * Tile::kChunkBytes);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          mma<bf16>(o[b][2 * n], a[b], values[0], values[1]);
          mma<bf16>(o[b][2 * n + 1], a[b], values[2], values[3]);
        }
      }
    }
  }
  __device__ void store(const PrefillParams& p, const Work& work) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float total = row_sum(state[b][j].sum);
        const int m = query_of(work, b, j);
        if (m > work.last_query) continue;
        const float inverse = total > 0 ? 1.0f / total : 0.0f;  // a padding row sees nothing
        bf16* to = p.out + work.query_place(p, m, kDim);
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const uint32_t pair = pack_bf16(o[b][n][2 * j] * inverse, o[b][n][2 * j + 1] * inverse);
          *reinterpret_cast<uint32_t*>(to + n * 8 + 2 * t) = pair;
        }
      }
    }
  }
};

// Grid [tiles of queries, num_kv_heads].
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kPerSm)
    prefill_kernel(const PrefillParams p) {
  extern __shared__ std::byte shared_raw[];
  __shared__ QueryTile shared_tile;
  using Shared = typename Shape::Shared;
  const uint32_t shared =
      (shared_address(shared_raw) + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  const auto k_stage = [&](int index) {
    return shared + static_cast<uint32_t>(offsetof(Shared, k) + index % 2 * sizeof(Shared::k[0]));
  };
  const auto v_stage = [&](int index) {
    return shared + static_cast<uint32_t>(offsetof(Shared, v) + index % 2 * sizeof(Shared::v[0]));
  };

  let_next_kernel_start();
  wait_for_previous_kernel();
  if (threadIdx.x < 32) {
    // The last tiles see the most keys: they start first.
    const QueryTile found =
        find_tile(p, Shape::kQueries, static_cast<int>(gridDim.x - 1 - blockIdx.x));
    if (threadIdx.x == 0) shared_tile = found;
  }
  __syncthreads();
  const QueryTile tile = shared_tile;
  if (tile.row < 0) return;
  const Work work(p, tile, Shape::kQueries, static_cast<int>(blockIdx.y));
  load_queries<Shape>(p, work, shared);
  load_tile<Shape>(p, work, p.k, k_stage(0), 0);
  cp_async_commit();
  load_tile<Shape>(p, work, p.v, v_stage(0), 0);
  cp_async_commit();

  WarpQueries<Shape> queries;
  queries.start(p, work);
  const int num_tiles = work.tiles();
  for (int index = 0; index < num_tiles; ++index) {
    cp_async_wait<1>();  // K is there; V may be on its way
    __syncthreads();
    load_tile<Shape>(p, work, p.k, k_stage(index + 1), index + 1);
    cp_async_commit();
    typename WarpQueries<Shape>::Scores s;
    queries.multiply_keys(shared, k_stage(index), s);
    const bool masked = (index + 1) * kKeys > work.fewest;
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) {
      if (masked) queries.mask(index * kKeys, b, s);
      queries.weigh(p.scale_log2, b, s);
    }
    cp_async_wait<1>();  // V is there; the next K may be on its way
    __syncthreads();
    load_tile<Shape>(p, work, p.v, v_stage(index + 1), index + 1);
    cp_async_commit();
    queries.add_values(v_stage(index), s);
  }
  queries.store(p, work);
}

template <typename Shape>
void launch_shape(const PrefillParams& params,
                  int32_t num_tokens,
                  bool early_start,
                  cudaStream_t stream) {
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<Shape>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(Shape::kSharedBytes)));
  // At most this many tiles, whatever the rows' lengths are.
  const int64_t tiles =
      static_cast<int64_t>(num_tokens) * params.group / Shape::kQueries + params.num_rows;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(params.num_kv_heads));
  ZIPAGE_CUDA_CHECK(launch_kernel(prefill_kernel<Shape>, grid, dim3(Shape::kThreads),
                                  Shape::kSharedBytes, stream, early_start, params));
}

template <int kDim>
void launch_dim(const PrefillParams& params,
                const StepBatch& batch,
                const CudaContext& context,
                cudaStream_t stream,
                PrefillVariant variant) {
  constexpr int kBlocks = kDim > 128 ? 1 : 2;
  if constexpr (kDim <= 128) {
    using Wide = PrefillShape<kDim, 8, kBlocks>;
    const bool fits = Wide::kSharedBytes <= context.max_shared_bytes;
    // Wide blocks read keys half as often; short rows fill narrow ones better.
    const bool is_long =
        static_cast<int64_t>(batch.max_row_tokens) * params.group >= kLongRowTiles * Wide::kQueries;
    if (fits && (variant == PrefillVariant::kEightWarps ||
                 (variant == PrefillVariant::kDefault && is_long))) {
      return launch_shape<Wide>(params, batch.num_tokens, context.early_start(), stream);
    }
  }
  launch_shape<PrefillShape<kDim, 4, kBlocks>>(params, batch.num_tokens, context.early_start(),
                                               stream);
}

}  // namespace

bool prefill_kernel_takes(const PagedAttentionArgs& args) {
  const PagedKvView& kv = *args.kv;
  const bool dim = kv.head_dim == 64 || kv.head_dim == 80 || kv.head_dim == 96 ||
                   kv.head_dim == 128 || kv.head_dim == 256;
  return args.dtype == DType::kBF16 && kv.dtype == DType::kBF16 && dim;
}

void launch_paged_attention_prefill(const PagedAttentionArgs& args,
                                    bool skip_single,
                                    const CudaContext& context,
                                    cudaStream_t stream,
                                    PrefillVariant variant) {
  const StepBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_tokens == 0) return;
  const LayerKvView& layer = kv.layers[args.layer];
  const PrefillParams params{static_cast<const bf16*>(args.q),
                             reinterpret_cast<const bf16*>(layer.k),
                             reinterpret_cast<const bf16*>(layer.v),
                             static_cast<bf16*>(args.out),
                             batch.row_begin,
                             batch.kv_lens,
                             batch.block_tables,
                             args.scale * kLog2e,
                             batch.num_rows,
                             batch.block_table_stride,
                             kv.block_size,
                             kv.num_kv_heads,
                             kv.num_q_heads / kv.num_kv_heads,
                             skip_single};
  switch (kv.head_dim) {
    case 64:
      return launch_dim<64>(params, batch, context, stream, variant);
    case 80:
      return launch_dim<80>(params, batch, context, stream, variant);
    case 96:
      return launch_dim<96>(params, batch, context, stream, variant);
    case 128:
      return launch_dim<128>(params, batch, context, stream, variant);
    case 256:
      return launch_dim<256>(params, batch, context, stream, variant);
    default:
      kernel_lacks("paged_attention", "head_dim", kv.head_dim, "64, 80, 96, 128 or 256 in bf16");
  }
}

}  // namespace zipage
