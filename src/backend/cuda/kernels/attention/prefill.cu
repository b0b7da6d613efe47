// Paged attention of chunks of prompts, bf16 tensor cores: queries of a chunk over cached and new
// keys.
//
// A block takes a tile of queries of one row and one KV head; the queries of a group are packed,
// query m of the row being token m / group, head m % group, so that short chunks fill the tile too.
// Keys and values pass through two stages of shared memory in tiles of 64 entries, with an online
// softmax in f32.
#include "backend/cuda/kernels/attention/prefill.h"
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

namespace {

constexpr int kKeys = 64;  // entries of a tile
constexpr float kLog2e = 1.4426950408889634f;

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
  static constexpr int kQueryBytes = kQueries * kDim * 2;
  static constexpr int kKeyBytes = kKeys * kDim * 2;
  // Two blocks an SM where they fit.
  static constexpr int kPerSm = kDim > 128 || kWarps > 4 ? 1 : 2;
  static constexpr size_t kSharedBytes = 1024 + kQueryBytes + 4 * kKeyBytes;
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
    int inclusive = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, inclusive, offset);
      if (lane >= offset) inclusive += below;
    }
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

// 16 bytes, or zeros where `exists` is false.
__device__ inline void cp_async_16_or_zero(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kPerSm)
    prefill_kernel(const PrefillParams p) {
  constexpr int kDim = Shape::kHeadDim;
  constexpr int kThreads = Shape::kThreads;
  using Tile = SwizzledTile<kDim>;
  constexpr int kBlocks = Shape::kBlocks;
  constexpr int kQueries = Shape::kQueries;
  constexpr int kSteps = kDim / 16;
  constexpr int kUnits = kDim / 8;  // 16-byte units of a row
  extern __shared__ std::byte shared_raw[];
  __shared__ QueryTile shared_tile;
  const uint32_t q_tile = (shared_address(shared_raw) + 1023u) / 1024u * 1024u;
  const uint32_t k_tiles = q_tile + Shape::kQueryBytes;
  const uint32_t v_tiles = k_tiles + 2 * Shape::kKeyBytes;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;

  let_next_kernel_start();
  wait_for_previous_kernel();
  if (warp == 0) {
    // The last tiles see the most keys: they start first.
    const QueryTile found = find_tile(p, kQueries, static_cast<int>(gridDim.x - 1 - blockIdx.x));
    if (lane == 0) shared_tile = found;
  }
  __syncthreads();
  const QueryTile tile = shared_tile;
  if (tile.row < 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const int first_token = p.row_begin[tile.row];
  const int row_tokens = p.row_begin[tile.row + 1] - first_token;
  const int row_queries = row_tokens * p.group;
  const int last_query = min(tile.first + kQueries, row_queries) - 1;
  const int context = p.kv_lens[tile.row] - row_tokens;  // token j sees entries < context + j + 1
  const int fewest = context + tile.first / p.group + 1;
  const int most = context + last_query / p.group + 1;
  const int num_tiles = (most + kKeys - 1) / kKeys;
  const int32_t* table = p.block_tables + static_cast<int64_t>(tile.row) * p.block_table_stride;
  const int num_heads = p.num_kv_heads * p.group;

  // Where query m of the row lies in q and out.
  const auto query_place = [&](int m) {
    return ((static_cast<int64_t>(first_token) + m / p.group) * num_heads + head * p.group +
            m % p.group) *
           kDim;
  };
#pragma unroll 4
  for (int i = thread; i < kQueries * kUnits; i += kThreads) {
    const int m = tile.first + i / kUnits;
    const bool exists = m <= last_query;
    cp_async_16_or_zero(q_tile + Tile::offset(i / kUnits, i % kUnits, kQueries),
                        p.q + query_place(exists ? m : tile.first) + i % kUnits * 8, exists);
  }
  const bool aligned = p.block_size % kKeys == 0;  // a tile lies in one block
  const auto load = [&](const bf16* pages, uint32_t to, int index) {
    const int first = index * kKeys;
    if (first >= most) return;
    const bf16* base = nullptr;
    if (aligned) {
      base = pages + ((static_cast<int64_t>(table[first / p.block_size]) * p.num_kv_heads + head) *
                          p.block_size +
                      first % p.block_size) *
                         kDim;
    }
#pragma unroll 8
    for (int i = thread; i < kKeys * kUnits; i += kThreads) {
      const int entry = first + i / kUnits;
      const bool exists = entry < most;
      const bf16* from;
      if (aligned) {
        from = base + static_cast<int64_t>(i) * 8;
      } else {
        const int place = exists ? entry : first;
        from = pages +
               ((static_cast<int64_t>(table[place / p.block_size]) * p.num_kv_heads + head) *
                    p.block_size +
                place % p.block_size) *
                   kDim +
               i % kUnits * 8;
      }
      cp_async_16_or_zero(to + Tile::offset(i / kUnits, i % kUnits, kKeys), from, exists);
    }
  };
  load(p.k, k_tiles, 0);
  cp_async_commit();
  load(p.v, v_tiles, 0);
  cp_async_commit();

  float o[kBlocks][kDim / 8][4];
  float maximum[kBlocks][2];
  float sum[kBlocks][2];
  int visible[kBlocks][2];  // entries the thread's queries see
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      maximum[b][j] = -INFINITY;
      sum[b][j] = 0;
      const int m = tile.first + (warp * kBlocks + b) * 16 + g + j * 8;
      visible[b][j] = context + min(m, last_query) / p.group + 1;
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[b][n][j] = 0;
    }
  }

  const uint32_t q_lane = Tile::lane_part(warp * kBlocks * 16 + lane % 16, lane / 16);
  const uint32_t k_lane = Tile::lane_part(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  const uint32_t v_lane = Tile::lane_part(lane / 8 % 2 * 8 + lane % 8, lane / 16);
  for (int index = 0; index < num_tiles; ++index) {
    const uint32_t k_tile = k_tiles + static_cast<uint32_t>(index % 2 * Shape::kKeyBytes);
    const uint32_t v_tile = v_tiles + static_cast<uint32_t>(index % 2 * Shape::kKeyBytes);
    cp_async_wait<1>();  // K is there; V may be on its way
    __syncthreads();
    load(p.k, k_tiles + static_cast<uint32_t>((index + 1) % 2 * Shape::kKeyBytes), index + 1);
    cp_async_commit();

    float s[kBlocks][kKeys / 8][4];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[b][n][j] = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
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
          mma_bf16(s[b][2 * n], a[b], keys[0], keys[1]);
          mma_bf16(s[b][2 * n + 1], a[b], keys[2], keys[3]);
        }
      }
    }
    const bool masked = (index + 1) * kKeys > fewest;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (masked) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int entry = index * kKeys + n * 8 + 2 * t + j % 2;
            if (entry >= visible[b][j / 2]) s[b][n][j] = -INFINITY;
          }
        }
      }
      float base[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float tile_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          tile_max = fmaxf(tile_max, fmaxf(s[b][n][2 * j], s[b][n][2 * j + 1]));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 2));
        const float new_max = fmaxf(maximum[b][j], tile_max * p.scale_log2);
        const float keep = power_of_two(maximum[b][j] - new_max);
        maximum[b][j] = new_max;
        base[j] = new_max;
        sum[b][j] *= keep;
        if (__any_sync(0xffffffffu, keep != 1)) {  // the maximum settles after a few tiles
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
          s[b][n][j] = power_of_two(fmaf(s[b][n][j], p.scale_log2, -base[j / 2]));
          sum[b][j / 2] += s[b][n][j];
        }
      }
    }
    cp_async_wait<1>();  // V is there; the next K may be on its way
    __syncthreads();
    load(p.v, v_tiles + static_cast<uint32_t>((index + 1) % 2 * Shape::kKeyBytes), index + 1);
    cp_async_commit();
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
          mma_bf16(o[b][2 * n], a[b], values[0], values[1]);
          mma_bf16(o[b][2 * n + 1], a[b], values[2], values[3]);
        }
      }
    }
  }

#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float total = sum[b][j];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int m = tile.first + (warp * kBlocks + b) * 16 + g + j * 8;
      if (m > last_query) continue;
      const float inverse = total > 0 ? 1.0f / total : 0.0f;  // a padding row sees nothing
      bf16* to = p.out + query_place(m);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const uint32_t pair = pack_bf16(o[b][n][2 * j] * inverse, o[b][n][2 * j + 1] * inverse);
        *reinterpret_cast<uint32_t*>(to + n * 8 + 2 * t) = pair;
      }
    }
  }
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
        static_cast<int64_t>(batch.max_row_tokens) * params.group >= 16 * Wide::kQueries;
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
