// out = x W^T for few tokens (at most 192), bf16, Hopper: the time is that of reading W once, if
// every SM streams weights until the end.
//
// A tile is 128 or 192 output features; its work is in_features / 64 steps of k. Weights are the
// rows (M) of the products and tokens their columns (N): one producer thread streams W tiles and
// the token tile of the same k through the stages of shared memory; two or three warpgroups
// multiply 64 rows each.
// Where whole tiles fill the SMs evenly, a block takes whole tiles. Otherwise the steps of all
// tiles form one list of which each block takes an equal, contiguous run: pieces of a tile that lie
// in several runs go to the workspace, and when all are there each of those blocks adds a share of
// the tile, in order of k, so that the result does not depend on timing.
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/common/wgmma.cuh"
#include "backend/cuda/kernels/gemm/gemm.h"
#include "backend/cuda/tensor_map.h"

namespace zipage {

namespace {

constexpr int kDepth = 64;  // k of a step
constexpr size_t kFlagBytes = 4096;
constexpr int kSplitRows = 128;  // rows of a tile that may be split
[[maybe_unused]] constexpr uint32_t kPieceWritten =
    0x10000;  // in a flag; the low half counts who has read the piece

struct StreamParams {
  const float* bias;  // [out_features] or null
  void* out;          // [num_tokens, out_features]
  float* partials;    // [blocks of the grid, 2, tokens * 128]: the run's first piece, its last
  uint32_t* flags;    // [blocks of the grid, 2, warpgroups], 0 between launches
  int64_t out_features;
  int32_t num_tokens;
  int32_t num_tiles;
  int32_t num_steps;  // of a tile
  bool whole_tiles;   // runs end where tiles end
  bool out_is_f32;
};

template <int kTokens, int kWarpgroups>
struct StreamShape {
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kWeightBytes = kRows * kDepth * 2;
  static constexpr int kTokenBytes = kTokens * kDepth * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kFit = (225 * 1024) / kStageBytes;
  static constexpr int kStages = kFit > 12 ? 12 : kFit;
  static constexpr size_t kSharedBytes = 1024 + size_t{kStages} * kStageBytes + 2 * kStages * 8;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void warpgroup_sync(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}
__device__ inline uint32_t load_acquire(const uint32_t* place) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}
__device__ inline void add_release(uint32_t* place, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

// Writes the four sums of columns 8 j + 2 t + {0, 1}, rows `row` + {0, 8}.
__device__ inline void store_sums(
    const StreamParams& p, int64_t row, int j, int lane, const float (&sum)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t feature = row + half * 8;
    if (feature >= p.out_features) continue;
    const float bias = p.bias == nullptr ? 0.0f : p.bias[feature];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = j * 8 + lane % 4 * 2 + i;
      if (token >= p.num_tokens) continue;
      const int64_t place = token * p.out_features + feature;
      const float value = sum[half * 2 + i] + bias;
      if (p.out_is_f32) {
        static_cast<float*>(p.out)[place] = value;
      } else {
        static_cast<bf16*>(p.out)[place] = from_float<bf16>(value);
      }
    }
  }
}

#endif

template <int kTokens, int kWarpgroups>
__global__ void __launch_bounds__(128 * (kWarpgroups + 1), 1)
    gemm_stream_kernel(const StreamParams p,
                       const __grid_constant__ CUtensorMap w_map,
                       const __grid_constant__ CUtensorMap x_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = StreamShape<kTokens, kWarpgroups>;
  constexpr int kStages = Shape::kStages;
  constexpr int kRows = Shape::kRows;
  extern __shared__ std::byte shared_raw[];
  const uint32_t tiles = (shared_address(shared_raw) + 1023u) / 1024u * 1024u;
  const uint32_t full = tiles + kStages * Shape::kStageBytes;
  const uint32_t empty = full + 8 * kStages;
  const auto block = static_cast<int32_t>(blockIdx.x);
  const auto num_blocks = static_cast<int32_t>(gridDim.x);
  const int32_t total = p.num_tiles * p.num_steps;
  const auto run_begin = [&](int32_t b) {
    return p.whole_tiles
               ? static_cast<int32_t>(static_cast<int64_t>(p.num_tiles) * b / num_blocks) *
                     p.num_steps
               : static_cast<int32_t>(static_cast<int64_t>(total) * b / num_blocks);
  };
  const int32_t begin = run_begin(block);
  const int32_t end = run_begin(block + 1);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;  // 0: producer

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, kWarpgroups);
    }
    mbarrier_init_fence();
    tma_prefetch_map(&w_map);
    tma_prefetch_map(&x_map);
  }
  __syncthreads();

  if (warpgroup == 0) {
    set_max_registers_down<40>();
    if (threadIdx.x == 0) {
      const uint64_t once = policy_evict_first();
      const uint64_t often = policy_evict_last();
      const auto load_weights = [&](int32_t tile, int32_t step, uint32_t stage) {
        const uint32_t barrier = full + 8 * stage;
        mbarrier_expect(barrier, Shape::kStageBytes);
        tma_load_2d(tiles + stage * Shape::kStageBytes, &w_map, step * kDepth, tile * kRows,
                    barrier, once);
      };
      const auto load_tokens = [&](int32_t step, uint32_t stage) {
        const uint32_t barrier = full + 8 * stage;
        const uint32_t to = tiles + stage * Shape::kStageBytes + Shape::kWeightBytes;
        tma_load_2d(to, &x_map, step * kDepth, 0, barrier, often);
      };
      int32_t tile = begin / p.num_steps;
      int32_t step = begin % p.num_steps;
      const auto advance = [&](int32_t& at_tile, int32_t& at_step) {
        if (++at_step == p.num_steps) {
          at_step = 0;
          ++at_tile;
        }
      };
      // Weights depend on nothing before this kernel: the first stages start while the previous
      // kernel ends.
      const int32_t early = end - begin < kStages ? end - begin : kStages;
      int32_t early_tile = tile;
      int32_t early_step = step;
      for (int32_t i = 0; i < early; ++i) {
        load_weights(early_tile, early_step, static_cast<uint32_t>(i));
        advance(early_tile, early_step);
      }
      wait_for_previous_kernel();
      for (int32_t i = 0; i < early; ++i) {
        load_tokens(step, static_cast<uint32_t>(i));
        advance(tile, step);
      }
      uint32_t stage = 0;
      uint32_t parity = 0;
      for (int32_t unit = begin + early; unit < end; ++unit) {
        mbarrier_wait(empty + 8 * stage, parity);
        load_weights(tile, step, stage);
        load_tokens(step, stage);
        advance(tile, step);
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      let_next_kernel_start();
    }
  } else {
    if constexpr (kWarpgroups == 2) {
      set_max_registers_up<232>();
    } else {
      set_max_registers_up<152>();
    }
    wait_for_previous_kernel();
    const int consumer = warpgroup - 1;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int lane = thread % 32;
    const auto release = [&](uint32_t s) {
      if (thread == 0) mbarrier_arrive(empty + 8 * s);
    };
    const auto first_row = [&](int32_t tile) {
      return static_cast<int64_t>(tile) * kRows + consumer * 64 + thread / 32 * 16 + lane / 4;
    };
    constexpr int kVectors = kTokens / 8;  // of four sums a thread
    constexpr int64_t kPartial = static_cast<int64_t>(kSplitRows) * kTokens;
    const auto piece = [&](int64_t b, int slot) {
      return reinterpret_cast<float4*>(p.partials + (b * 2 + slot) * kPartial) + consumer * 128 +
             thread;
    };
    const auto flag = [&](int64_t b, int slot) {
      return p.flags + (b * 2 + slot) * kWarpgroups + consumer;
    };

    float sum[kTokens / 2];
    uint32_t stage = 0;
    uint32_t parity = 0;
    int32_t split_tile[2] = {-1, -1};
    for (int32_t unit = begin; unit < end;) {
      const int32_t tile = unit / p.num_steps;
      const int32_t first_unit = unit;
      const int32_t tile_end = (tile + 1) * p.num_steps;
      const int32_t piece_end = tile_end < end ? tile_end : end;
      uint32_t accumulate = 0;
      for (; unit < piece_end; ++unit) {
        mbarrier_wait(full + 8 * stage, parity);
        const uint32_t w =
            tiles + stage * Shape::kStageBytes + static_cast<uint32_t>(consumer) * (64 * 128);
        const uint32_t x = tiles + stage * Shape::kStageBytes + Shape::kWeightBytes;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          wgmma(sum, wgmma_operand(w + k * 32), wgmma_operand(x + k * 32), accumulate);
          accumulate = 1;
        }
        wgmma_commit();
        wgmma_wait<0>();  // the other warpgroups fill the gap; the stage is free that much earlier
        release(stage);
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) asm volatile("" : "+f"(sum[i])::"memory");

      if (first_unit == tile * p.num_steps && piece_end == tile_end) {
        const int64_t row = first_row(tile);
#pragma unroll
        for (int j = 0; j < kVectors; ++j) {
          const float four[4] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
          store_sums(p, row, j, lane, four);
        }
        continue;
      }
      if constexpr (kRows == kSplitRows) {
        const int slot = first_unit == tile * p.num_steps ? 1 : 0;
        split_tile[slot] = tile;
        float4* to = piece(block, slot);
#pragma unroll
        for (int j = 0; j < kVectors; ++j) {
          __stcg(to + j * kSplitRows * 2,
                 make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
        }
        __threadfence();
        warpgroup_sync(consumer);
        if (thread == 0) add_release(flag(block, slot), kPieceWritten);
      }
    }
    if constexpr (kRows == kSplitRows) {
      // The block whose run holds a unit: the last one that begins at or before it (no run is
      // empty).
      const auto owner = [&](int64_t unit) {
        return static_cast<int32_t>(((unit + 1) * num_blocks - 1) / total);
      };
#pragma unroll 1
      for (int slot = 0; slot < 2; ++slot) {
        const int32_t tile = split_tile[slot];
        if (tile < 0) continue;
        const int32_t first = owner(static_cast<int64_t>(tile) * p.num_steps);
        const int32_t count = owner(static_cast<int64_t>(tile + 1) * p.num_steps - 1) - first + 1;
        const auto block_of = [&](int32_t i) { return static_cast<int64_t>(first + i); };
        for (int32_t i = thread; i < count; i += 128) {
          const uint32_t* place = flag(block_of(i), i == 0 ? 1 : 0);
          while (load_acquire(place) < kPieceWritten) {
          }
        }
        warpgroup_sync(consumer);
        const int32_t mine = block - first;
        const int64_t row = first_row(tile);
        for (int32_t j = kVectors * mine / count; j < kVectors * (mine + 1) / count; ++j) {
          float four[4] = {};
#pragma unroll 4
          for (int32_t i = 0; i < count; ++i) {
            const float4 part = __ldcg(piece(block_of(i), i == 0 ? 1 : 0) + j * kSplitRows * 2);
            four[0] += part.x;
            four[1] += part.y;
            four[2] += part.z;
            four[3] += part.w;
          }
          store_sums(p, row, j, lane, four);
        }
        warpgroup_sync(consumer);
        for (int32_t i = thread; i < count; i += 128) {
          uint32_t* place = flag(block_of(i), i == 0 ? 1 : 0);
          // The last of the readers leaves 0 for the next launch.
          if ((atomicAdd(place, 1u) & 0xffffu) == static_cast<uint32_t>(count - 1)) *place = 0;
        }
      }
    }
  }
#endif
}

template <int kTokens, int kWarpgroups>
void launch(const GemmStreamArgs& args,
            const CudaContext& context,
            cudaStream_t stream,
            bool whole_tiles) {
  using Shape = StreamShape<kTokens, kWarpgroups>;
  const auto kernel = gemm_stream_kernel<kTokens, kWarpgroups>;
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(Shape::kSharedBytes)));
  auto* workspace = static_cast<std::byte*>(args.workspace);
  const StreamParams params{args.bias,
                            args.out,
                            reinterpret_cast<float*>(workspace + kFlagBytes),
                            reinterpret_cast<uint32_t*>(workspace),
                            args.out_features,
                            args.num_tokens,
                            ceil_div(args.out_features, Shape::kRows),
                            ceil_div(args.in_features, kDepth),
                            whole_tiles,
                            args.out_dtype == DType::kF32};
  const CUtensorMap w_map =
      make_matrix_map(context, args.w, static_cast<uint64_t>(args.out_features),
                      static_cast<uint64_t>(args.in_features), Shape::kRows);
  const CUtensorMap x_map = make_matrix_map(context, args.x, static_cast<uint64_t>(args.num_tokens),
                                            static_cast<uint64_t>(args.in_features), kTokens);
  // One block an SM: all run at once, which the waits for pieces of split tiles count on.
  int64_t blocks =
      whole_tiles ? params.num_tiles : static_cast<int64_t>(params.num_tiles) * params.num_steps;
  if (blocks > context.num_sms) blocks = context.num_sms;
  ZIPAGE_CUDA_CHECK(launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                  dim3(Shape::kThreads), Shape::kSharedBytes, stream,
                                  args.early_start, params, w_map, x_map));
}

template <int kTokens>
void choose_rows(const GemmStreamArgs& args, const CudaContext& context, cudaStream_t stream) {
  // Whole tiles of 192 rows where they leave at most one SM in fourteen without work.
  const int64_t tiles = ceil_div(args.out_features, 192);
  const int64_t rounds = ceil_div(tiles, context.num_sms);
  if (args.rows == 192 || (args.rows == 0 && tiles * 14 >= rounds * context.num_sms * 13)) {
    launch<kTokens, 3>(args, context, stream, true);
  } else {
    launch<kTokens, 2>(args, context, stream, false);
  }
}

}  // namespace

bool gemm_stream_takes(const GemmStreamArgs& args, const CudaContext& context) {
  constexpr size_t kPartials = size_t{2} * kSplitRows * kMaxStreamTokens * sizeof(float);
  return context.is_hopper() && args.num_tokens <= kMaxStreamTokens && args.in_features % 8 == 0 &&
         args.out_features < (int64_t{1} << 24) && args.in_features < (int64_t{1} << 24) &&
         args.workspace_bytes >= kFlagBytes + static_cast<size_t>(context.num_sms) * kPartials;
}

void launch_gemm_stream(const GemmStreamArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream) {
  if (args.num_tokens <= 8) return choose_rows<8>(args, context, stream);
  if (args.num_tokens <= 32) return choose_rows<32>(args, context, stream);
  if (args.num_tokens <= 64) return choose_rows<64>(args, context, stream);
  if (args.num_tokens <= 96) return choose_rows<96>(args, context, stream);
  if (args.num_tokens <= 128) return choose_rows<128>(args, context, stream);
  if (args.num_tokens <= 160) return choose_rows<160>(args, context, stream);
  return choose_rows<192>(args, context, stream);
}

}  // namespace zipage
