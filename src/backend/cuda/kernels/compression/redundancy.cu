// Redundancy of keys (method.md 3.1.4) by all pairs (raw, flash: Alg. 3) or pairs inside a block (lightning), for every
// device and dtype; lightning.cu does the latter on Hopper for the usual shapes.
//
// Idea: the similarity matrix is symmetric and never stored: row c of it gives the sum of row c and, as column c, the last row
// above the threshold. One warp has 64 rows and walks column tiles of 64 keys (mma.m16n8k16), normed afterwards; zeroed
// entries are collected as integers, so that the order of the atomics does not matter. A second kernel takes them out of the
// sums and applies the softmax. f32 keys, and keys whose rotation is turned back, take a kernel without tensor cores.
//
// Cost of one job of 2,048 entries, 36 layers x 8 KV heads, head_dim 128: all pairs 309 GFLOP, 0.44 ms at 710 TFLOP/s.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): flash 1.986 ms, 156 TFLOP/s, 22 %; lightning with `derotate` (f32
// arithmetic) 2.565 ms.
#include "backend/cuda/kernels/common/mma.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/keys.cuh"
#include "backend/cuda/kernels/compression/lightning.h"
#include "backend/cuda/kernels/compression/units.cuh"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage::compression {
namespace {

constexpr int kTile = 64;  // keys of a column tile, and rows of a warp
constexpr int kPlainThreads = 256;
constexpr int kFinishThreads = 512;
constexpr int kSharedEntries = 5120;  // zeroed sums of a unit that fit in shared memory
// Zeroed similarities are added as integers of 2^-40: exact, so that the order of the atomics does
// not matter.
constexpr float kFixedPoint = 0x1p40f;
constexpr double kFixedUnit = 0x1p-40;

// What row c of the similarity matrix says; all [unit, max_length].
struct PairStats {
  float* sums;    // of row c, without the diagonal
  int32_t* last;  // last entry above the threshold, -1: none
  float* values;  // its similarity
};

struct Params {
  Launch launch;
  CompressionBatch batch;
  PairStats stats;
  float threshold;
  bool lightning;
  bool derotate;
  const float* rope_cos_sin;
  int32_t rotary_dim;
  FastDiv tiles;     // row tiles of a unit
  int32_t row_tile;  // keys
  bool resident;     // the columns of a row tile are its rows
};

__device__ inline int block_begin(const Launch& launch, int entry) {
  return static_cast<int>(launch.block_size.divide(entry) * launch.block_size.divisor);
}

// Entries that are compared with those of [begin, end).
struct Range {
  int begin, end;
};
__device__ inline Range columns_of(const Params& params, int begin, int end, int length) {
  if (!params.lightning) return {0, length};
  const int last_block = block_begin(params.launch, end - 1);
  return {block_begin(params.launch, begin),
          min(last_block + static_cast<int>(params.launch.block_size.divisor), length)};
}

__device__ inline void store_stats(
    const PairStats& stats, int64_t at, float sum, int last, float value) {
  stats.sums[at] = sum;
  stats.last[at] = last;
  stats.values[at] = value;
}

// Takes the larger `last` of two lanes.
__device__ inline void merge_last(int step, int* last, float* value) {
  const int other = __shfl_xor_sync(0xffffffffu, *last, step);
  const float other_value = __shfl_xor_sync(0xffffffffu, *value, step);
  if (other > *last) *last = other, *value = other_value;
}

constexpr int kRowBlocks = kTile / 16;    // of a warp's rows, 16 each
constexpr int kColumnBlocks = kTile / 8;  // of a column tile, 8 each
constexpr int kThreadRows = 2 * kRowBlocks;
constexpr int kMostRows = 256;  // of a row tile
constexpr int kPairThreads = 128;

struct PairShared {
  float row_inverse[kMostRows];
  float column_inverse[kTile];
};

// A row tile of pair_kernel: each warp has 64 rows and walks column tiles of 64 keys. Thread rows 2 m + half are row
// 16 m + 8 half + lane / 4 of the warp.
template <typename T>
struct PairBlock {
  using Products = float[kRowBlocks][kColumnBlocks][4];

  const Params& params;
  const Launch& launch;
  PairShared& shared;
  const Unit unit;
  const int length;
  const int begin;  // first entry of the row tile
  const int head_dim = launch.head_dim;
  const int stride = head_dim + 8;
  const int parts = head_dim / 8;
  T* const rows;                                                     // shared memory
  const int warp_rows = static_cast<int>(threadIdx.x / 32) * kTile;  // of the row tile
  const int row_begin = begin + warp_rows;
  float sums[kThreadRows];  // without the norm of the row, until the end
  int last[kThreadRows];
  float values[kThreadRows];

  __device__ PairBlock(
      const Params& p, PairShared& block_shared, const Unit& u, int unit_length, int first, T* to)
      : params(p),
        launch(p.launch),
        shared(block_shared),
        unit(u),
        length(unit_length),
        begin(first),
        rows(to) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sums[i] = 0, last[i] = -1, values[i] = 0;
  }

  // `count` entries, a multiple of 32.
  __device__ void load(T* to, int first, int count) const {
    const int32_t* table = params.batch.block_tables +
                           static_cast<int64_t>(unit.job) * params.batch.block_table_stride;
    const T* keys = reinterpret_cast<const T*>(launch.layers[unit.layer].k);
    for (int i = threadIdx.x / 32 * 32; i < count; i += blockDim.x) {
      load_keys_async(launch, table, unit.head, keys, first + i, length, parts, to + i * stride,
                      stride);
    }
    cp_async_commit();
  }
  __device__ void store_inverse_norms(const T* from, float* to, int count) const {
    for (int key = threadIdx.x; key < count; key += blockDim.x) {
      float sum = 0;
      for (int part = 0; part < parts; ++part) {
        Packed8<T> packed;
        packed.raw = *reinterpret_cast<const uint4*>(from + key * stride + part * 8);
        float x[8];
        packed.unpack(x);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum = fmaf(x[j], x[j], sum);
      }
      to[key] = inverse_norm(sum);
    }
  }

  // The warp's rows times a column tile.
  __device__ void multiply(const T* tile_keys, Products& acc) const {
    const int lane = lane_id();
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n)
        acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0;
    }
    const T* a_lane = rows + (warp_rows + (lane & 15)) * stride + (lane >> 4) * 8;
    const T* b_lane =
        tile_keys + ((lane & 7) + ((lane >> 4) << 3)) * stride + ((lane >> 3) & 1) * 8;
#pragma unroll 1
    for (int depth = 0; depth < head_dim; depth += 16) {
      uint32_t b[kColumnBlocks / 2][4];
#pragma unroll
      for (int i = 0; i < kColumnBlocks / 2; ++i)
        load_matrices(b[i], shared_address(b_lane + i * 16 * stride + depth));
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
        uint32_t a[4];
        load_matrices(a, shared_address(a_lane + m * 16 * stride + depth));
#pragma unroll
        for (int n = 0; n < kColumnBlocks; ++n)
          mma<T>(acc[m][n], a, b[n / 2][(n % 2) * 2], b[n / 2][(n % 2) * 2 + 1]);
      }
    }
  }
  // Whether nothing of a column tile has to be left out: off the diagonal, before the end and, with lightning, inside one
  // block.
  __device__ bool counts_whole(int column_begin) const {
    const int column_end = column_begin + kTile;
    const bool diagonal = column_begin < row_begin + kTile && column_end > row_begin;
    return !diagonal && column_end <= length &&
           (!params.lightning || (block_begin(launch, min(row_begin, column_begin)) ==
                                  block_begin(launch, max(row_begin, column_begin) + kTile - 1)));
  }
  // Takes the similarities of a column tile into the rows' statistics.
  __device__ void compare(const T* tile_keys, const float* inverse, int column_begin) {
    Products acc;
    multiply(tile_keys, acc);
    const int lane = lane_id();
    const bool whole = counts_whole(column_begin);
    float2 column_scale[kColumnBlocks];
#pragma unroll
    for (int n = 0; n < kColumnBlocks; ++n)
      column_scale[n] = *reinterpret_cast<const float2*>(inverse + 8 * n + 2 * (lane % 4));
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int local = 16 * m + 8 * half + lane / 4;
        const int row = row_begin + local;
        const float threshold = params.threshold / shared.row_inverse[warp_rows + local];
        const Range allowed = whole ? Range{column_begin, column_begin + kTile}
                                    : columns_of(params, row, row + 1, length);
        float sum = sums[2 * m + half], value = values[2 * m + half];
        int newest = last[2 * m + half];
#pragma unroll
        for (int n = 0; n < kColumnBlocks; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int column = column_begin + 8 * n + 2 * (lane % 4) + c;
            const float similarity =
                acc[m][n][2 * half + c] * (c == 0 ? column_scale[n].x : column_scale[n].y);
            if (whole || (column != row && column >= allowed.begin && column < allowed.end)) {
              sum += similarity;
              if (similarity > threshold) newest = column, value = similarity;
            }
          }
        }
        sums[2 * m + half] = sum, last[2 * m + half] = newest, values[2 * m + half] = value;
      }
    }
  }
  __device__ void store(uint32_t unit_index) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int step = 1; step <= 2; step *= 2) {
        sums[i] += __shfl_xor_sync(kAllLanes, sums[i], step);
        merge_last(step, &last[i], &values[i]);
      }
      const int row = row_begin + 16 * (i / 2) + 8 * (i % 2) + lane_id() / 4;
      if (lane_id() % 4 == 0 && row < length) {
        const int64_t at = static_cast<int64_t>(unit_index) * params.batch.max_length + row;
        const float scale = shared.row_inverse[row - begin];
        store_stats(params.stats, at, sums[i] * scale, last[i], values[i] * scale);
      }
    }
  }
};

// Tensor cores. With `resident`, the columns of a row tile are its rows; otherwise column tiles pass through two stages.
template <typename T>
__global__ void __launch_bounds__(kPairThreads, 2)
    pair_kernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ PairShared shared;
  const uint32_t unit_index = params.tiles.divide(blockIdx.x);
  const Unit unit = unit_of(params.launch, unit_index);
  const int length = params.batch.lengths[unit.job];
  const int begin =
      static_cast<int>(blockIdx.x - unit_index * params.tiles.divisor) * params.row_tile;
  if (begin >= length) return;
  PairBlock<T> block(params, shared, unit, length, begin, reinterpret_cast<T*>(dynamic_shared));
  T* columns = block.rows + params.row_tile * block.stride;  // two tiles; absent when resident
  const int tile_elements = kTile * block.stride;
  const int row_begin = block.row_begin;
  const Range mine = row_begin < length
                         ? columns_of(params, row_begin, min(row_begin + kTile, length), length)
                         : Range{0, 0};

  block.load(block.rows, begin, params.row_tile);
  const Range all = columns_of(params, begin, min(begin + params.row_tile, length), length);
  const int first_tile = all.begin / kTile * kTile;
  if (params.resident) {
    cp_async_wait<0>();
  } else {
    block.load(columns, first_tile, kTile);
    cp_async_wait<1>();
  }
  __syncthreads();
  block.store_inverse_norms(block.rows, shared.row_inverse, params.row_tile);
  __syncthreads();
  if (params.resident) {
    for (int tile = (mine.begin - begin) / kTile * kTile; tile < mine.end - begin; tile += kTile) {
      block.compare(block.rows + tile * block.stride, shared.row_inverse + tile, begin + tile);
    }
  } else {
    int stage = 0;
    for (int tile = first_tile; tile < all.end; tile += kTile) {
      T* current = columns + stage * tile_elements;
      stage ^= 1;
      block.load(columns + stage * tile_elements, tile + kTile, tile + kTile < all.end ? kTile : 0);
      cp_async_wait<1>();
      __syncthreads();
      block.store_inverse_norms(current, shared.column_inverse, kTile);
      __syncthreads();
      if (tile < mine.end && tile + kTile > mine.begin)
        block.compare(current, shared.column_inverse, tile);
      __syncthreads();
    }
  }
  block.store(unit_index);
}

// f32 arithmetic, for f32 keys and for keys that are turned back first. A block has 64 rows, 4 x 4
// pairs a thread.
__global__ void __launch_bounds__(kPlainThreads)
    plain_pair_kernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(16) float units[];
  const Launch& launch = params.launch;
  const uint32_t unit_index = params.tiles.divide(blockIdx.x);
  const Unit unit = unit_of(launch, unit_index);
  const int length = params.batch.lengths[unit.job];
  const int begin = static_cast<int>(blockIdx.x - unit_index * params.tiles.divisor) * kTile;
  if (begin >= length) return;
  const int head_dim = launch.head_dim, stride = head_dim + 4, half = params.rotary_dim / 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const LayerPointers& layer = launch.layers[unit.layer];
  const int32_t* table =
      params.batch.block_tables + static_cast<int64_t>(unit.job) * params.batch.block_table_stride;
  const int32_t* positions = layer.positions;
  if (positions != nullptr)
    positions += history_offset(launch, params.batch.slots[unit.job], unit.head);
  const int history = params.batch.histories[unit.job],
            offset = params.batch.position_offsets[unit.job];

  // Unit vectors of 64 keys; zeros beyond the end.
  const auto load = [&](float* to, int first) {
    for (int key = warp; key < kTile; key += kPlainThreads / 32) {
      float* row = to + key * stride;
      const bool valid = first + key < length;
      const int64_t element = valid ? entry_offset(launch, table, unit.head, first + key) : 0;
      float norm = 0;
      for (int i = lane * 4; i < head_dim; i += 128) {
        const float4 x =
            valid ? load4(layer.k, launch.dtype, element + i) : make_float4(0, 0, 0, 0);
        *reinterpret_cast<float4*>(row + i) = x;
        norm = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, norm))));
      }
      norm = warp_sum(norm);
      const float inverse = inverse_norm(norm);
      __syncwarp();
      if (params.derotate && valid) {
        const int position = position_of(positions, first + key, history, offset);
        const float* angles =
            params.rope_cos_sin + static_cast<int64_t>(position) * params.rotary_dim;
        for (int i = lane; i < half; i += 32) {
          const float a = row[i], b = row[half + i], c = __ldg(angles + i),
                      s = __ldg(angles + half + i);
          row[i] = a * c + b * s;
          row[half + i] = b * c - a * s;
        }
        __syncwarp();
      }
      for (int i = lane; i < head_dim; i += 32) row[i] *= inverse;
    }
  };
  float* columns = units + kTile * stride;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sums[4];
  int last[4];
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 0, last[i] = -1, values[i] = 0;
  load(units, begin);
  const Range all = columns_of(params, begin, min(begin + kTile, length), length);
  for (int tile = all.begin / kTile * kTile; tile < all.end; tile += kTile) {
    __syncthreads();
    load(columns, tile);
    __syncthreads();
    float acc[4][4] = {};
    for (int depth = 0; depth < head_dim; depth += 4) {
      float4 a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = *reinterpret_cast<const float4*>(units + (ty + 16 * i) * stride + depth);
        b[i] = *reinterpret_cast<const float4*>(columns + (tx + 16 * i) * stride + depth);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          acc[i][j] = fmaf(a[i].x, b[j].x, acc[i][j]);
          acc[i][j] = fmaf(a[i].y, b[j].y, acc[i][j]);
          acc[i][j] = fmaf(a[i].z, b[j].z, acc[i][j]);
          acc[i][j] = fmaf(a[i].w, b[j].w, acc[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = begin + ty + 16 * i;
      const Range allowed = columns_of(params, row, row + 1, length);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = tile + tx + 16 * j;
        if (column == row || column < allowed.begin || column >= allowed.end) continue;
        sums[i] += acc[i][j];
        if (acc[i][j] > params.threshold) last[i] = column, values[i] = acc[i][j];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int step = 1; step <= 8; step <<= 1) {
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
      merge_last(step, &last[i], &values[i]);
    }
    const int row = begin + ty + 16 * i;
    if (tx == 0 && row < length) {
      const int64_t at = static_cast<int64_t>(unit_index) * params.batch.max_length + row;
      store_stats(params.stats, at, sums[i], last[i], values[i]);
    }
  }
}

// One block a unit: sums less the zeroed entries, then softmax(sum / (len * tau)).
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const __grid_constant__ Launch launch,
                  const int32_t* lengths,
                  PairStats stats,
                  int max_length,
                  unsigned long long* zeroed_scratch,
                  bool lightning,
                  float temperature,
                  float* score) {
  __shared__ unsigned long long zeroed_shared[kSharedEntries];
  __shared__ BlockReduceShared shared;
  const Unit unit = unit_of(launch, blockIdx.x);
  const int length = lengths[unit.job];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * max_length;
  unsigned long long* zeroed = length <= kSharedEntries ? zeroed_shared : zeroed_scratch + at;
  for (int i = threadIdx.x; i < length; i += kFinishThreads) zeroed[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += kFinishThreads) {
    const int last = stats.last[at + i];
    if (last >= 0) {
      atomicAdd(zeroed + last,
                static_cast<unsigned long long>(__float2ll_rn(stats.values[at + i] * kFixedPoint)));
    }
  }
  __syncthreads();
  const float divisor =
      static_cast<float>(lightning ? static_cast<int>(launch.block_size.divisor) : length) *
      temperature;
  float* out = score + unit.row * launch.capacity;
  float most = -INFINITY;
  for (int i = threadIdx.x; i < length; i += kFinishThreads) {
    const auto fixed =
        static_cast<long long>(*static_cast<volatile unsigned long long*>(zeroed + i));
    const float x =
        (stats.sums[at + i] - static_cast<float>(static_cast<double>(fixed) * kFixedUnit)) /
        divisor;
    out[i] = x;
    most = fmaxf(most, x);
  }
  most = block_max(most, shared);
  float sum = 0;
  for (int i = threadIdx.x; i < length; i += kFinishThreads) {
    const float e = exp2f((out[i] - most) * kLog2e);
    out[i] = e;
    sum += e;
  }
  sum = block_sum(sum, shared);
  for (int i = threadIdx.x; i < length; i += kFinishThreads) out[i] /= sum;
}

template <typename T>
void run_pairs(Params params, cudaStream_t stream) {
  const int head_dim = params.launch.head_dim;
  const int warps = head_dim > 128 ? 2 : 4;
  params.row_tile = warps * kTile;
  params.resident =
      params.lightning && params.row_tile % static_cast<int>(params.launch.block_size.divisor) == 0;
  const int tiles = num_parts(params.batch.max_length, params.row_tile);
  params.tiles = FastDiv(static_cast<uint32_t>(tiles));
  const size_t shared_bytes =
      sizeof(T) *
      static_cast<size_t>((params.row_tile + (params.resident ? 0 : 2 * kTile)) * (head_dim + 8));
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(
      pair_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  pair_kernel<T><<<params.launch.num_units() * tiles, warps * 32, shared_bytes, stream>>>(params);
  ZIPAGE_CUDA_CHECK_LAUNCH("redundancy");
}

void run_plain_pairs(Params params, cudaStream_t stream) {
  const int tiles = num_parts(params.batch.max_length, kTile);
  params.tiles = FastDiv(static_cast<uint32_t>(tiles));
  const size_t shared_bytes =
      sizeof(float) * static_cast<size_t>(2 * kTile * (params.launch.head_dim + 4));
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(plain_pair_kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared_bytes)));
  plain_pair_kernel<<<params.launch.num_units() * tiles, kPlainThreads, shared_bytes, stream>>>(
      params);
  ZIPAGE_CUDA_CHECK_LAUNCH("redundancy in f32");
}

}  // namespace

size_t redundancy_unit_bytes(int max_length) {
  return static_cast<size_t>(max_length) *
         (2 * sizeof(float) + sizeof(int32_t) + sizeof(unsigned long long));
}

}  // namespace zipage::compression

namespace zipage {

using namespace compression;  // NOLINT: this file's own

void launch_redundancy(const RedundancyArgs& args,
                       const CudaContext& context,
                       cudaStream_t stream) {
  const PagedKvView& kv = *args.kv;
  const int max_length = args.batch->max_length;
  if (kv.head_dim % 16 != 0 || kv.head_dim > 256) {
    kernel_lacks("redundancy", "head_dim", kv.head_dim, "multiples of 16 up to 256");
  }
  if (max_length <= 0 || launch_lightning(args, context, stream)) return;
  Params params{};
  params.batch = *args.batch;
  params.threshold = args.similarity_threshold;
  params.lightning = args.mode == Redundancy::kLightning;
  params.derotate = args.derotate;
  params.rope_cos_sin = args.rope_cos_sin;
  params.rotary_dim = args.rotary_dim;
  for_each_launch(kv, args.batch->num_jobs, args.layer_begin, args.num_layers, args.capacity,
                  redundancy_unit_bytes(max_length), [&](const Launch& launch) {
                    params.launch = launch;
                    const auto entries =
                        static_cast<size_t>(launch.num_units()) * static_cast<size_t>(max_length);
                    auto* zeroed = reinterpret_cast<unsigned long long*>(args.workspace);
                    params.stats.sums = reinterpret_cast<float*>(zeroed + entries);
                    params.stats.values = params.stats.sums + entries;
                    params.stats.last = reinterpret_cast<int32_t*>(params.stats.values + entries);
                    if (!args.derotate && kv.dtype == DType::kBF16) {
                      run_pairs<__nv_bfloat16>(params, stream);
                    } else if (!args.derotate && kv.dtype == DType::kF16) {
                      run_pairs<__half>(params, stream);
                    } else {
                      run_plain_pairs(params, stream);
                    }
                    finish_kernel<<<launch.num_units(), kFinishThreads, 0, stream>>>(
                        launch, args.batch->lengths, params.stats, max_length, zeroed,
                        params.lightning, args.temperature, args.out);
                    ZIPAGE_CUDA_CHECK_LAUNCH("redundancy: sums");
                  });
}

}  // namespace zipage
