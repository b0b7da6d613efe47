// Lightning redundancy (method.md 3.1.4: pairs inside a block of the pages) on Hopper: bf16, blocks of 128 or 256 entries.
//
// Idea: a block of threads has 256 keys of one unit in shared memory (one TMA load a page block), all that their pairs need:
// it multiplies them with each other (wgmma, 64 x 128 at a time, never stored), takes the zeroed entries out of the row sums
// and writes sum / (len * tau). A second kernel applies the softmax over the unit's entries.
//
// Cost of one job of 2,048 entries, 36 layers x 8 KV heads, head_dim 128: 151 MB of K, 0.035 ms at 4.27 TB/s; 39 GFLOP, 0.05
// ms at 710 TFLOP/s.
// Measured (H200, 2026-11-30, bench_ops_cuda_compression): 0.114 ms, 31 %; 8 layers a launch: 0.147 ms, 24 %.
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/online_softmax.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/wgmma.cuh"
#include "backend/cuda/kernels/compression/keys.cuh"
#include "backend/cuda/kernels/compression/lightning.h"
#include "backend/cuda/kernels/compression/units.cuh"
#include "backend/cuda/tensor_map.h"

namespace zipage::compression {
namespace {

constexpr int kThreads = 256;               // two warpgroups
constexpr int kKeys = 256;                  // of a tile
[[maybe_unused]] constexpr int kRows = 64;  // that a warpgroup multiplies at a time
[[maybe_unused]] constexpr int kColumns = 128;
constexpr int kSoftmaxThreads = 256;
// Zeroed similarities are added as integers of 2^-40: exact, so that the order of the atomics does
// not matter.
[[maybe_unused]] constexpr float kFixedPoint = 0x1p40f;
[[maybe_unused]] constexpr double kFixedUnit = 0x1p-40;
constexpr int kTileAlignment = 1024;  // of the swizzle

struct Params {
  const int32_t* lengths;
  const int32_t* block_tables;
  int32_t table_stride;
  float threshold;
  float divisor;  // len * tau
  float* out;
  FastDiv tiles;  // of a unit
  Launch launch;
  CUtensorMap keys[kMaxLayersPerLaunch];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// What a thread knows of its two rows: r = lane / 4 of the warp's 16, and r + 8.
struct RowStats {
  float sum[2] = {0, 0};     // of similarities, without the norm of the row
  int newest[2] = {-1, -1};  // last column above the threshold
  float value[2] = {0, 0};   // its similarity
};

// kWhole: all columns count.
template <bool kWhole>
__device__ inline void add_columns(const float (&product)[kColumns / 2],
                                   const float* inverse,
                                   const float (&threshold)[2],
                                   int first_column,
                                   int end_column,
                                   RowStats& rows) {
  const int lane_column = first_column + static_cast<int>(threadIdx.x) % 4 * 2;
  int found[2] = {-1, -1};  // a constant each time: columns after the thread's first
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const float2 scale = *reinterpret_cast<const float2*>(inverse + lane_column + 8 * n);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float similarity = product[4 * n + 2 * half + c] * (c == 0 ? scale.x : scale.y);
        if (!kWhole && lane_column + 8 * n + c >= end_column) continue;
        rows.sum[half] += similarity;
        if (similarity > threshold[half]) {
          found[half] = 8 * n + c;
          rows.value[half] = similarity;
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (found[half] >= 0) rows.newest[half] = lane_column + found[half];
  }
}

// 0 where row and column are the same key; `block` counts the groups of 8 columns to that of the
// warp's first row.
__device__ inline void clear_diagonal(float (&product)[kColumns / 2], int block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = lane / 4 - lane % 4 * 2;  // 0 or 1: of the two that the thread has
#pragma unroll
  for (int n = 0; n < kColumns / 8; n += 2) {
    if (n != block) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& x = product[4 * (n + half) + 2 * half + c];
        x = column == c ? 0.0f : x;
      }
    }
  }
}

#endif

struct Shared {
  float inverse[kKeys];  // norms
  float sums[kKeys];
  unsigned long long zeroed[kKeys];
  alignas(8) uint64_t barrier;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Has TMA load the blocks of `count` keys from `begin` on. A block lands as its first 64 columns, then the others.
__device__ inline void load_keys(const Params& params,
                                 const Unit& unit,
                                 int begin,
                                 int count,
                                 int block_bytes,
                                 uint32_t to,
                                 uint32_t barrier) {
  const Launch& launch = params.launch;
  const auto block_size = static_cast<int>(launch.block_size.divisor);
  const int blocks = (count + block_size - 1) / block_size;
  mbarrier_expect(barrier, static_cast<uint32_t>(blocks * block_bytes));
  const int32_t* table = params.block_tables +
                         static_cast<int64_t>(unit.job) * params.table_stride +
                         launch.block_size.divide(static_cast<uint32_t>(begin));
  for (int i = 0; i < blocks; ++i) {
    const int row =
        (__ldg(table + i) * static_cast<int>(launch.heads.divisor) + unit.head) * block_size;
    tma_load_3d(to + static_cast<uint32_t>(i * block_bytes), &params.keys[unit.layer], 0, row, 0,
                barrier);
  }
}

// The squared norm of a key at `key`, whose chunks of 64 columns lie `chunk_bytes` apart, swizzled.
template <int kDim>
__device__ inline float squared_norm(const unsigned char* key, int chunk_bytes) {
  float norm = 0;
#pragma unroll
  for (int piece = 0; piece < kDim / 8; ++piece) {
    const auto raw = *reinterpret_cast<const uint4*>(
        key + piece / 8 * chunk_bytes + (piece % 8 ^ static_cast<int>(threadIdx.x) % 8) * 16);
    float x[8];
    unpack8<__nv_bfloat162>(raw, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) norm = fmaf(x[i], x[i], norm);
  }
  return norm;
}

// Puts a row's statistics, of four lanes, in shared memory.
__device__ inline void store_row(
    const RowStats& rows, int half, int row, int count, Shared& shared) {
  const float sum = row_sum(rows.sum[half]);
  float value = rows.value[half];
  int newest = rows.newest[half];
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const int other = __shfl_xor_sync(kAllLanes, newest, step);
    const float other_value = __shfl_xor_sync(kAllLanes, value, step);
    if (other > newest) newest = other, value = other_value;
  }
  if (lane_id() % 4 != 0 || row >= count) return;
  shared.sums[row] = sum * shared.inverse[row];
  if (newest >= 0) {
    const float similarity = value * shared.inverse[row];
    atomicAdd(shared.zeroed + newest,
              static_cast<unsigned long long>(__float2ll_rn(similarity * kFixedPoint)));
  }
}

#endif

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    lightning_kernel(const __grid_constant__ Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared_raw[];
  __shared__ Shared shared;
  const Launch& launch = params.launch;
  const uint32_t unit_index = params.tiles.divide(blockIdx.x);
  const Unit unit = unit_of(launch, unit_index);
  const int begin = static_cast<int>(blockIdx.x - unit_index * params.tiles.divisor) * kKeys;
  const int count = min(__ldg(params.lengths + unit.job) - begin, kKeys);  // keys of this tile
  if (count <= 0) return;
  const uint32_t raw = shared_address(shared_raw);
  const uint32_t tile_keys = (raw + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  const uint32_t barrier = shared_address(&shared.barrier);
  const auto block_size = static_cast<int>(launch.block_size.divisor);
  const int block_bytes = block_size * kDim * 2;
  const int thread = static_cast<int>(threadIdx.x);

  if (thread == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    load_keys(params, unit, begin, count, block_bytes, tile_keys, barrier);
  }
  shared.zeroed[thread] = 0;
  __syncthreads();
  mbarrier_wait(barrier, 0);
  shared.inverse[thread] = inverse_norm(squared_norm<kDim>(shared_raw + (tile_keys - raw) +
                                                               thread / block_size * block_bytes +
                                                               thread % block_size * kSwizzleBytes,
                                                           block_size * kSwizzleBytes));
  __syncthreads();

  const int lane = thread % 32, warp = thread / 32 % 4;
#pragma unroll 1
  for (int tile = 0; tile < 2; ++tile) {
    const int row_begin = (thread / 128 * 2 + tile) * kRows;
    if (row_begin >= count) break;
    const int first_row = row_begin + 16 * warp + lane / 4;
    const float threshold[2] = {params.threshold / shared.inverse[first_row],
                                params.threshold / shared.inverse[first_row + 8]};
    const auto place_of = [&](int first) {
      return __shfl_sync(kAllLanes,
                         tile_keys + static_cast<uint32_t>(first / block_size * block_bytes +
                                                           first % block_size * kSwizzleBytes),
                         0);
    };
    const uint64_t a = wgmma_operand(place_of(row_begin));
    RowStats rows;
#pragma unroll 1
    for (int column = 0; column < kKeys; column += kColumns) {
      const bool same_block =
          block_size == kKeys || column / kColumns == row_begin / kColumns;  // blocks of 128
      if (!same_block || column >= count) continue;
      const uint64_t b = wgmma_operand(place_of(column));
      float product[kColumns / 2];
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) {
        const auto step =
            static_cast<uint64_t>((k / 4 * block_size * kSwizzleBytes + k % 4 * 32) / 16);
        wgmma(product, a + step, b + step, k != 0);
      }
      wgmma_commit();
      wgmma_wait<0>();  // the other warpgroups of the SM fill the gap
      pin_registers(product);
      if (column == row_begin / kColumns * kColumns)
        clear_diagonal(product, (row_begin - column) / 8 + 2 * warp);
      if (column + kColumns <= count) {
        add_columns<true>(product, shared.inverse, threshold, column, count, rows);
      } else {
        add_columns<false>(product, shared.inverse, threshold, column, count, rows);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) store_row(rows, half, first_row + 8 * half, count, shared);
  }
  __syncthreads();
  if (thread >= count) return;
  const auto fixed = static_cast<long long>(shared.zeroed[thread]);
  params.out[unit.row * launch.capacity + begin + thread] =
      (shared.sums[thread] - static_cast<float>(static_cast<double>(fixed) * kFixedUnit)) /
      params.divisor;
#endif
}

// One block a unit: softmax of its row, in place.
__global__ void __launch_bounds__(kSoftmaxThreads)
    softmax_kernel(const __grid_constant__ Launch launch, const int32_t* lengths, float* rows) {
  __shared__ BlockReduceShared shared;
  constexpr int kHeld = 8;  // a thread's entries that stay in registers
  const Unit unit = unit_of(launch, blockIdx.x);
  const int length = lengths[unit.job];
  float* row = rows + unit.row * launch.capacity;
  float held[kHeld], most = -INFINITY;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = i * kSoftmaxThreads + static_cast<int>(threadIdx.x);
    held[i] = at < length ? row[at] : -INFINITY;
    most = fmaxf(most, held[i]);
  }
  constexpr int kFirst = kHeld * kSoftmaxThreads;
  for (int i = kFirst + static_cast<int>(threadIdx.x); i < length; i += kSoftmaxThreads)
    most = fmaxf(most, row[i]);
  most = block_max(most, shared);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    held[i] = exp2f((held[i] - most) * kLog2e);
    sum += held[i];
  }
  for (int i = kFirst + static_cast<int>(threadIdx.x); i < length; i += kSoftmaxThreads) {
    const float e = exp2f((row[i] - most) * kLog2e);
    row[i] = e;
    sum += e;
  }
  sum = block_sum(sum, shared);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = i * kSoftmaxThreads + static_cast<int>(threadIdx.x);
    if (at < length) row[at] = held[i] / sum;
  }
  for (int i = kFirst + static_cast<int>(threadIdx.x); i < length; i += kSoftmaxThreads)
    row[i] /= sum;
}

template <int kDim>
void run(const Params& params, int units, cudaStream_t stream) {
  constexpr int kSharedBytes = kTileAlignment + kKeys * kDim * 2;
  const auto kernel = lightning_kernel<kDim>;
  ZIPAGE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared));
  const auto blocks = static_cast<unsigned>(units) * params.tiles.divisor;
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(params);
  ZIPAGE_CUDA_CHECK_LAUNCH("lightning redundancy");
  softmax_kernel<<<static_cast<unsigned>(units), kSoftmaxThreads, 0, stream>>>(
      params.launch, params.lengths, params.out);
  ZIPAGE_CUDA_CHECK_LAUNCH("lightning redundancy: softmax");
}

bool takes(const RedundancyArgs& args, const CudaContext& context) {
  const PagedKvView& kv = *args.kv;
  // With a threshold below 0 the cleared diagonal would count.
  return page_map_fits(context, kv) && args.mode == Redundancy::kLightning && !args.derotate &&
         args.similarity_threshold >= 0 && kv.dtype == DType::kBF16 &&
         (kv.head_dim == 64 || kv.head_dim == 128) &&
         (kv.block_size == 128 || kv.block_size == 256);
}

}  // namespace

bool launch_lightning(const RedundancyArgs& args, const CudaContext& context, cudaStream_t stream) {
  if (!takes(args, context)) return false;
  const PagedKvView& kv = *args.kv;
  const CompressionBatch& batch = *args.batch;
  Params params{};
  params.lengths = batch.lengths;
  params.block_tables = batch.block_tables;
  params.table_stride = batch.block_table_stride;
  params.threshold = args.similarity_threshold;
  params.divisor = static_cast<float>(kv.block_size) * args.temperature;
  params.out = args.out;
  params.tiles = FastDiv(static_cast<uint32_t>(num_parts(batch.max_length, kKeys)));
  for_each_launch(kv, batch.num_jobs, args.layer_begin, args.num_layers, args.capacity, 1,
                  [&](const Launch& launch) {
                    params.launch = launch;
                    for (int i = 0; i < launch.num_layers; ++i) {
                      params.keys[i] = make_page_map(context, kv, launch.layers[i].k, 64,
                                                     static_cast<uint32_t>(kv.block_size));
                    }
                    if (kv.head_dim == 128) {
                      run<128>(params, launch.num_units(), stream);
                    } else {
                      run<64>(params, launch.num_units(), stream);
                    }
                  });
  return true;
}

}  // namespace zipage::compression
