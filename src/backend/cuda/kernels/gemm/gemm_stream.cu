// out = x W^T for few tokens (at most 192), bf16, Hopper: a weight-streaming GEMM ("stream-K" with a fixed split).
//
// Idea: with few tokens the time is that of reading W once, if every SM streams weights until the end. A tile is 128 or 192
// output features; its work is in_features / 64 steps of k. Weights are the rows (M) of the wgmma and tokens its columns (N):
// one producer thread has TMA fill a ring of stages with the W tile and the token tile of the same k, and two or three
// consumer warpgroups multiply 64 rows each. W depends on no kernel ahead, so the first stages load while the previous kernel
// ends (programmatic dependent launch).
// Where whole tiles fill the SMs evenly, a block takes whole tiles. Otherwise the steps of all tiles form one list of which
// each block takes an equal, contiguous run: pieces of a tile that lie in several runs go to the workspace, and when all are
// there each of those blocks adds a share of the tile, in order of k, so that the result does not depend on timing.
//
// Cost of a layer of Qwen3-8B: 386 MB of weights, 0.090 ms at 4.27 TB/s; 0.77 GFLOP a token.
// Measured (H200, 2026-11-29, script/bench-gpu linear), 36 layers, floor 3.26 ms: 1 token 3.84 ms, 32 tokens 4.00 ms (82 %),
// 128 tokens 4.92 ms (66 %), 192 tokens 5.67 ms (57 %). linear() times it against cuBLASLt and keeps the faster.
// A split tile costs about 5 us at the end, where pieces meet through flags in memory; from about 160 tokens on the tensor
// cores need as long as the weights.
// Tried and dropped: sharing token tiles between two blocks by TMA multicast (gate_up 81 us instead of 55).
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/common/wgmma.cuh"
#include "backend/cuda/kernels/gemm/gemm.h"
#include "backend/cuda/tensor_map.h"

namespace zipage {

namespace {

constexpr int kDepth = 64;                     // k of a step
constexpr int kWarpgroup = 128;                // threads
constexpr int kWarpgroupRows = 64;             // M of a wgmma
constexpr int kTileAlignment = 1024;           // of the swizzle
constexpr int kStageBudgetBytes = 225 * 1024;  // of shared memory
constexpr int kMostStages = 12;
constexpr size_t kFlagBytes = 4096;
constexpr int kSplitRows = 128;                                 // rows of a tile that may be split
[[maybe_unused]] constexpr int kVectorStride = kSplitRows * 2;  // float4s of a vector of a piece
constexpr int kWideTileRows = 192;
// What setmaxnreg leaves a thread of the producer and gives one of two or three consumer warpgroups.
[[maybe_unused]] constexpr int kProducerRegisters = 40;
[[maybe_unused]] constexpr int kConsumerRegistersOfTwo = 232;
[[maybe_unused]] constexpr int kConsumerRegistersOfThree = 152;
// A flag of a piece: its high half says that the piece is written, its low half counts who has read it.
[[maybe_unused]] constexpr uint32_t kPieceWritten = 0x10000;
[[maybe_unused]] constexpr uint32_t kReaders = 0xffff;

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
  static constexpr int kRows = kWarpgroupRows * kWarpgroups;
  static constexpr int kThreads = kWarpgroup * (kWarpgroups + 1);
  static constexpr int kWeightBytes = kRows * kDepth * static_cast<int>(sizeof(bf16));
  static constexpr int kTokenBytes = kTokens * kDepth * static_cast<int>(sizeof(bf16));
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kFit = kStageBudgetBytes / kStageBytes;
  static constexpr int kStages = kFit > kMostStages ? kMostStages : kFit;
  // From the first multiple of kTileAlignment on.
  struct Shared {
    std::byte stages[kStages][kStageBytes];  // weights, tokens
    uint64_t full[kStages];                  // mbarriers
    uint64_t empty[kStages];
  };
  static constexpr size_t kSharedBytes = kTileAlignment + sizeof(Shared);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The bias of rows `row` and row + 8; 0 where there is none.
__device__ inline float2 load_bias(const StreamParams& p, int64_t row) {
  const auto of = [&](int64_t feature) {
    return p.bias != nullptr && feature < p.out_features ? p.bias[feature] : 0.0f;
  };
  return make_float2(of(row), of(row + 8));
}

// Writes the four sums of columns 8 j + 2 t + {0, 1}, rows `row` + {0, 8}, in T.
template <typename T>
__device__ inline void store_sums(
    const StreamParams& p, int64_t row, int j, float2 bias, const float (&sum)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t feature = row + half * 8;
    if (feature >= p.out_features) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = j * 8 + lane_id() % 4 * 2 + i;
      if (token >= p.num_tokens) continue;
      static_cast<T*>(p.out)[token * p.out_features + feature] =
          from_float<T>(sum[half * 2 + i] + (half == 0 ? bias.x : bias.y));
    }
  }
}

// The steps [begin, end) of a block, in the list of all tiles' steps.
struct BlockRun {
  int32_t block = static_cast<int32_t>(blockIdx.x);
  int32_t num_blocks = static_cast<int32_t>(gridDim.x);
  int32_t total;
  int32_t begin;
  int32_t end;
  __device__ explicit BlockRun(const StreamParams& p)
      : total(p.num_tiles * p.num_steps), begin(begin_of(p, block)), end(begin_of(p, block + 1)) {}
  __device__ int32_t begin_of(const StreamParams& p, int32_t b) const {
    return p.whole_tiles
               ? static_cast<int32_t>(static_cast<int64_t>(p.num_tiles) * b / num_blocks) *
                     p.num_steps
               : static_cast<int32_t>(static_cast<int64_t>(total) * b / num_blocks);
  }
  // The block whose run holds a unit: the last one that begins at or before it (no run is empty).
  __device__ int32_t owner(int64_t unit) const {
    return static_cast<int32_t>(((unit + 1) * num_blocks - 1) / total);
  }
};

// A place in the ring of stages, as producer and consumers walk it.
template <int kStages>
struct StageCursor {
  uint32_t stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Addresses of the ring in shared memory.
template <typename Shape>
struct Ring {
  using Shared = typename Shape::Shared;
  uint32_t base;
  __device__ uint32_t weights(uint32_t stage) const { return base + stage * Shape::kStageBytes; }
  __device__ uint32_t tokens(uint32_t stage) const { return weights(stage) + Shape::kWeightBytes; }
  __device__ uint32_t full(uint32_t stage) const {
    return base + static_cast<uint32_t>(offsetof(Shared, full)) + 8 * stage;
  }
  __device__ uint32_t empty(uint32_t stage) const {
    return base + static_cast<uint32_t>(offsetof(Shared, empty)) + 8 * stage;
  }
};

// The one thread that has TMA fill the ring.
template <typename Shape>
struct Producer {
  const Ring<Shape> ring;
  const CUtensorMap* w_map;
  const CUtensorMap* x_map;
  const int32_t num_steps;
  const uint64_t once = policy_evict_first();
  const uint64_t often = policy_evict_last();

  struct Position {
    int32_t tile, step;
    __device__ void advance(int32_t num_steps) {
      if (++step == num_steps) {
        step = 0;
        ++tile;
      }
    }
  };
  __device__ void load_weights(const Position& at, uint32_t stage) const {
    const uint32_t barrier = ring.full(stage);
    mbarrier_expect(barrier, Shape::kStageBytes);
    tma_load_2d(ring.weights(stage), w_map, at.step * kDepth, at.tile * Shape::kRows, barrier,
                once);
  }
  __device__ void load_tokens(const Position& at, uint32_t stage) const {
    tma_load_2d(ring.tokens(stage), x_map, at.step * kDepth, 0, ring.full(stage), often);
  }

  __device__ void run(int32_t begin, int32_t end) const {
    constexpr int kStages = Shape::kStages;
    Position at{begin / num_steps, begin % num_steps};
    // Weights depend on nothing before this kernel: the first stages start while the previous kernel ends.
    const int32_t early = end - begin < kStages ? end - begin : kStages;
    Position early_at = at;
    for (int32_t i = 0; i < early; ++i) {
      load_weights(early_at, static_cast<uint32_t>(i));
      early_at.advance(num_steps);
    }
    wait_for_previous_kernel();
    for (int32_t i = 0; i < early; ++i) {
      load_tokens(at, static_cast<uint32_t>(i));
      at.advance(num_steps);
    }
    StageCursor<kStages> cursor;
    for (int32_t unit = begin + early; unit < end; ++unit) {
      mbarrier_wait(ring.empty(cursor.stage), cursor.parity);
      load_weights(at, cursor.stage);
      load_tokens(at, cursor.stage);
      at.advance(num_steps);
      cursor.advance();
    }
    let_next_kernel_start();
  }
};

// A warpgroup that multiplies 64 rows of each tile. Its `sum` is a wgmma accumulator (wgmma.cuh).
template <int kTokens, int kWarpgroups>
struct Consumer {
  using Shape = StreamShape<kTokens, kWarpgroups>;
  static constexpr int kVectors = kTokens / 8;  // of four sums a thread

  const StreamParams& p;
  const Ring<Shape> ring;
  const BlockRun run;
  const int consumer;  // 0 on
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  StageCursor<Shape::kStages> cursor{};
  float sum[kTokens / 2];

  __device__ Consumer(const StreamParams& params,
                      const Ring<Shape>& stages,
                      const BlockRun& steps,
                      int number)
      : p(params), ring(stages), run(steps), consumer(number) {}
  __device__ void sync() const { named_barrier_sync(consumer + 1, kWarpgroup); }
  __device__ int64_t first_row(int32_t tile) const {
    return static_cast<int64_t>(tile) * Shape::kRows + consumer * kWarpgroupRows +
           thread / 32 * 16 + lane_id() / 4;
  }
  // A block's piece, slot 1: of the tile that begins in its run; slot 0: of the tile that began before.
  __device__ float4* piece(int64_t block, int slot) const {
    constexpr int64_t kPartial = static_cast<int64_t>(kSplitRows) * kTokens;
    return reinterpret_cast<float4*>(p.partials + (block * 2 + slot) * kPartial) +
           consumer * kWarpgroup + thread;
  }
  __device__ uint32_t* flag(int64_t block, int slot) const {
    return p.flags + (block * 2 + slot) * kWarpgroups + consumer;
  }

  // sum = W x^T over the steps [unit, end) of one tile.
  __device__ void multiply(int32_t unit, int32_t end) {
    uint32_t accumulate = 0;
    for (; unit < end; ++unit) {
      mbarrier_wait(ring.full(cursor.stage), cursor.parity);
      const uint32_t w = ring.weights(cursor.stage) +
                         static_cast<uint32_t>(consumer) * (kWarpgroupRows * kSwizzleBytes);
      const uint32_t x = ring.tokens(cursor.stage);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
        wgmma(sum, wgmma_operand(w + k * 32), wgmma_operand(x + k * 32), accumulate);
        accumulate = 1;
      }
      wgmma_commit();
      wgmma_wait<0>();  // the other warpgroups fill the gap; the stage is free that much earlier
      if (thread == 0) mbarrier_arrive(ring.empty(cursor.stage));
      cursor.advance();
    }
    pin_registers(sum);
  }
  template <typename T>
  __device__ void store_tile(int32_t tile) const {
    const int64_t row = first_row(tile);
    const float2 bias = load_bias(p, row);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const float four[4] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      store_sums<T>(p, row, j, bias, four);
    }
  }
  __device__ void publish_piece(int slot) const {
    float4* to = piece(run.block, slot);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      __stcg(to + j * kVectorStride,
             make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
    }
    __threadfence();
    sync();
    if (thread == 0) add_release(flag(run.block, slot), kPieceWritten);
  }

  // Adds this block's share of a split tile's vectors over the pieces of all its blocks.
  __device__ void add_pieces(int32_t tile) const {
    const int32_t first = run.owner(static_cast<int64_t>(tile) * p.num_steps);
    const int32_t count = run.owner(static_cast<int64_t>(tile + 1) * p.num_steps - 1) - first + 1;
    const auto block_of = [&](int32_t i) { return static_cast<int64_t>(first + i); };
    for (int32_t i = thread; i < count; i += kWarpgroup) {
      const uint32_t* place = flag(block_of(i), i == 0 ? 1 : 0);
      while (load_acquire(place) < kPieceWritten) {
      }
    }
    sync();
    const int32_t mine = run.block - first;
    const int64_t row = first_row(tile);
    const float2 bias = load_bias(p, row);
    for (int32_t j = kVectors * mine / count; j < kVectors * (mine + 1) / count; ++j) {
      float four[4] = {};
#pragma unroll 4
      for (int32_t i = 0; i < count; ++i) {
        const float4 part = __ldcg(piece(block_of(i), i == 0 ? 1 : 0) + j * kVectorStride);
        four[0] += part.x;
        four[1] += part.y;
        four[2] += part.z;
        four[3] += part.w;
      }
      p.out_is_f32 ? store_sums<float>(p, row, j, bias, four)
                   : store_sums<bf16>(p, row, j, bias, four);
    }
    sync();
    for (int32_t i = thread; i < count; i += kWarpgroup) {
      uint32_t* place = flag(block_of(i), i == 0 ? 1 : 0);
      // The last of the readers leaves 0 for the next launch.
      if ((atomicAdd(place, 1u) & kReaders) == static_cast<uint32_t>(count - 1)) *place = 0;
    }
  }

  __device__ void work() {
    int32_t split_tile[2] = {-1, -1};
    for (int32_t unit = run.begin; unit < run.end;) {
      const int32_t tile = unit / p.num_steps;
      const int32_t tile_begin = tile * p.num_steps;
      const int32_t tile_end = tile_begin + p.num_steps;
      const int32_t end = tile_end < run.end ? tile_end : run.end;
      multiply(unit, end);
      const bool from_start = unit == tile_begin;
      unit = end;
      if (from_start && end == tile_end) {
        p.out_is_f32 ? store_tile<float>(tile) : store_tile<bf16>(tile);
        continue;
      }
      if constexpr (Shape::kRows == kSplitRows) {
        const int slot = from_start ? 1 : 0;
        split_tile[slot] = tile;
        publish_piece(slot);
      }
    }
    if constexpr (Shape::kRows == kSplitRows) {
#pragma unroll 1
      for (int slot = 0; slot < 2; ++slot) {
        if (split_tile[slot] >= 0) add_pieces(split_tile[slot]);
      }
    }
  }
};

#endif

template <int kTokens, int kWarpgroups>
__global__ void __launch_bounds__(kWarpgroup*(kWarpgroups + 1), 1)
    gemm_stream_kernel(const StreamParams p,
                       const __grid_constant__ CUtensorMap w_map,
                       const __grid_constant__ CUtensorMap x_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = StreamShape<kTokens, kWarpgroups>;
  extern __shared__ std::byte shared_raw[];
  const Ring<Shape> ring{(shared_address(shared_raw) + kTileAlignment - 1) / kTileAlignment *
                         kTileAlignment};
  const BlockRun run(p);
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;  // 0: producer

  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < Shape::kStages; ++s) {
      mbarrier_init(ring.full(s), 1);
      mbarrier_init(ring.empty(s), kWarpgroups);
    }
    mbarrier_init_fence();
    tma_prefetch_map(&w_map);
    tma_prefetch_map(&x_map);
  }
  __syncthreads();

  if (warpgroup == 0) {
    set_max_registers_down<kProducerRegisters>();
    if (threadIdx.x == 0) {
      const Producer<Shape> producer{ring, &w_map, &x_map, p.num_steps};
      producer.run(run.begin, run.end);
    }
  } else {
    set_max_registers_up<kWarpgroups == 2 ? kConsumerRegistersOfTwo : kConsumerRegistersOfThree>();
    wait_for_previous_kernel();
    Consumer<kTokens, kWarpgroups> consumer(p, ring, run, warpgroup - 1);
    consumer.work();
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
                            num_parts(args.out_features, Shape::kRows),
                            num_parts(args.in_features, kDepth),
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
  // Whole wide tiles where they leave at most one SM in fourteen without work.
  const int64_t tiles = num_parts(args.out_features, kWideTileRows);
  const int64_t rounds = num_parts(tiles, context.num_sms);
  if (args.rows == kWideTileRows ||
      (args.rows == 0 && tiles * 14 >= rounds * context.num_sms * 13)) {
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
