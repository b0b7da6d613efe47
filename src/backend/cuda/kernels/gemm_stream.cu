// out = x W^T for few tokens (at most 192), bf16, Hopper: the time is that of reading W once, if
// every SM streams weights until the end.
//
// A tile is 256 output features; its work is in_features / 64 steps of k. The steps of all tiles
// form one list, of which each cluster takes an equal, contiguous run (so a run ends inside a
// tile). Weights are the rows (M) of the products and tokens their columns (N): one producer thread
// streams W tiles and the token tile of the same k through the stages of shared memory, two
// warpgroups multiply. In a cluster of two, neighbouring tiles share each token tile: each block
// loads half of it into both. A tile whose steps lie in several runs is finished by the run that
// has its first step: the others leave their sums in the workspace and raise a flag; they are added
// in order of k, so the result does not depend on timing.
#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/gemm.h"
#include "backend/cuda/kernels/wgmma.cuh"
#include "backend/cuda/tensor_map.h"

namespace zipage {

namespace {

constexpr int kTileRows = 256;
constexpr int kDepth = 64;     // k of a step
constexpr int kConsumers = 2;  // warpgroups, 128 rows each
constexpr int kBlocks = 2;     // 64-row products of a warpgroup
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr size_t kFlagBytes = 4096;

struct StreamParams {
  const float* bias;  // [out_features] or null
  void* out;          // [num_tokens, out_features]
  float* partials;    // [blocks of the grid, tokens * 256]
  uint32_t* flags;    // [blocks of the grid, kConsumers], 0 between launches
  int64_t out_features;
  int32_t num_tokens;
  int32_t num_tiles;  // of a cluster: 256 * kCluster features
  int32_t num_steps;  // of a tile
};

template <int kTokens, int kCluster>
struct StreamShape {
  static constexpr int kWeightBytes = kTileRows * kDepth * 2;
  static constexpr int kTokenBytes = kTokens * kDepth * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kStages = (225 * 1024) / kStageBytes > 6 ? 6 : (225 * 1024) / kStageBytes;
  static constexpr size_t kSharedBytes = 1024 + size_t{kStages} * kStageBytes + 2 * kStages * 8;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void warpgroup_sync(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}
__device__ inline uint32_t load_acquire(const uint32_t* place) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}
__device__ inline void store_release(uint32_t* place, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

__device__ inline void store_out(void* out, int64_t place, float value, float*) {
  static_cast<float*>(out)[place] = value;
}
__device__ inline void store_out(void* out, int64_t place, float value, bf16*) {
  static_cast<bf16*>(out)[place] = from_float<bf16>(value);
}

#endif

template <int kTokens, int kCluster, typename Out>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_stream_kernel(const StreamParams p,
                       const __grid_constant__ CUtensorMap w_map,
                       const __grid_constant__ CUtensorMap x_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = StreamShape<kTokens, kCluster>;
  constexpr int kStages = Shape::kStages;
  extern __shared__ std::byte shared_raw[];
  const uint32_t tiles = (shared_address(shared_raw) + 1023u) / 1024u * 1024u;
  const uint32_t full = tiles + kStages * Shape::kStageBytes;
  const uint32_t empty = full + 8 * kStages;
  const uint32_t rank = kCluster > 1 ? cluster_rank() : 0;
  const int64_t cluster = blockIdx.x / kCluster;
  const int64_t num_clusters = gridDim.x / kCluster;
  const int64_t total = static_cast<int64_t>(p.num_tiles) * p.num_steps;
  const int64_t begin = total * cluster / num_clusters;
  const int64_t end = total * (cluster + 1) / num_clusters;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;  // 0: producer

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, kConsumers * kCluster);
    }
    mbarrier_init_fence();
    tma_prefetch_map(&w_map);
    tma_prefetch_map(&x_map);
  }
  if constexpr (kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  if (warpgroup == 0) {
    set_max_registers_down<40>();
    if (threadIdx.x == 0) {
      const uint64_t once = policy_evict_first();
      const uint64_t often = policy_evict_last();
      const auto load_weights = [&](int64_t unit, uint32_t stage) {
        const int64_t tile = unit / p.num_steps;
        const int32_t step = static_cast<int32_t>(unit % p.num_steps);
        const uint32_t barrier = full + 8 * stage;
        mbarrier_expect(barrier, Shape::kStageBytes);
        tma_load_2d(tiles + stage * Shape::kStageBytes, &w_map, step * kDepth,
                    static_cast<int32_t>((tile * kCluster + rank) * kTileRows), barrier, once);
      };
      const auto load_tokens = [&](int64_t unit, uint32_t stage) {
        const int32_t k = static_cast<int32_t>(unit % p.num_steps) * kDepth;
        const uint32_t barrier = full + 8 * stage;
        const uint32_t to = tiles + stage * Shape::kStageBytes + Shape::kWeightBytes;
        if constexpr (kCluster > 1) {
          constexpr int kShare = kTokens / kCluster;
          tma_load_2d_multicast(to + rank * kShare * kDepth * 2, &x_map, k,
                                static_cast<int32_t>(rank * kShare), barrier, (1u << kCluster) - 1,
                                often);
        } else {
          tma_load_2d(to, &x_map, k, 0, barrier, often);
        }
      };
      // Weights depend on nothing before this kernel: the first stages start while the previous
      // kernel ends.
      const int64_t early = end - begin < kStages ? end - begin : kStages;
      for (int64_t i = 0; i < early; ++i) load_weights(begin + i, static_cast<uint32_t>(i));
      wait_for_previous_kernel();
      for (int64_t i = 0; i < early; ++i) load_tokens(begin + i, static_cast<uint32_t>(i));
      uint32_t stage = 0;
      uint32_t parity = 0;
      for (int64_t unit = begin + early; unit < end; ++unit) {
        mbarrier_wait(empty + 8 * stage, parity);
        load_weights(unit, stage);
        load_tokens(unit, stage);
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      let_next_kernel_start();
    }
  } else {
    set_max_registers_up<232>();
    wait_for_previous_kernel();
    const int consumer = warpgroup - 1;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int lane = thread % 32;
    float sum[kBlocks][kTokens / 2];
    uint32_t stage = 0;
    uint32_t parity = 0;
    const auto release = [&](uint32_t s) {
      if constexpr (kCluster > 1) {
        if (thread < kCluster) mbarrier_arrive_remote(empty + 8 * s, static_cast<uint32_t>(thread));
      } else {
        if (thread == 0) mbarrier_arrive(empty + 8 * s);
      }
    };
    constexpr int kVectors = kBlocks * kTokens / 8;  // of four sums a thread
    constexpr int64_t kPartial = static_cast<int64_t>(kTileRows) * kTokens;
    for (int64_t unit = begin; unit < end;) {
      const int64_t tile = unit / p.num_steps;
      const int32_t first_step = static_cast<int32_t>(unit % p.num_steps);
      const int64_t tile_end = (tile + 1) * p.num_steps;
      const int64_t piece_end = tile_end < end ? tile_end : end;
      uint32_t previous = kStages;  // the stage whose products may still be running
      uint32_t accumulate = 0;
      for (; unit < piece_end; ++unit) {
        mbarrier_wait(full + 8 * stage, parity);
        const uint32_t w = tiles + stage * Shape::kStageBytes +
                           static_cast<uint32_t>(consumer) * (kBlocks * 64 * 128);
        const uint32_t x = tiles + stage * Shape::kStageBytes + Shape::kWeightBytes;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
          for (int b = 0; b < kBlocks; ++b) {
            wgmma(sum[b], wgmma_operand(w + b * 64 * 128 + k * 32), wgmma_operand(x + k * 32),
                  accumulate);
          }
          accumulate = 1;
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (previous != kStages) release(previous);
        previous = stage;
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      wgmma_wait<0>();
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kTokens / 2; ++i) asm volatile("" : "+f"(sum[b][i])::"memory");
      }
      release(previous);

      if (first_step != 0) {
        // Not the first piece of its tile: leave the sums for the block that has it.
        auto* to =
            reinterpret_cast<float4*>(p.partials + blockIdx.x * kPartial) + consumer * 128 + thread;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          const int b = v / (kTokens / 8);
          const int i = v % (kTokens / 8) * 4;
          __stcg(to + v * (kConsumers * 128),
                 make_float4(sum[b][i], sum[b][i + 1], sum[b][i + 2], sum[b][i + 3]));
        }
        __threadfence();
        warpgroup_sync(consumer);
        if (thread == 0) store_release(p.flags + blockIdx.x * kConsumers + consumer, 1);
        continue;
      }
      // The pieces that follow, in order of k.
      for (int64_t other = cluster + 1; unit < tile_end; ++other) {
        const int64_t other_end = total * (other + 1) / num_clusters;
        const int64_t block = other * kCluster + rank;
        if (other_end > unit) {
          uint32_t* flag = p.flags + block * kConsumers + consumer;
          if (thread == 0) {
            while (load_acquire(flag) == 0) {
            }
          }
          warpgroup_sync(consumer);
          const auto* from = reinterpret_cast<const float4*>(p.partials + block * kPartial) +
                             consumer * 128 + thread;
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            const int b = v / (kTokens / 8);
            const int i = v % (kTokens / 8) * 4;
            const float4 more = __ldcg(from + v * (kConsumers * 128));
            sum[b][i] += more.x;
            sum[b][i + 1] += more.y;
            sum[b][i + 2] += more.z;
            sum[b][i + 3] += more.w;
          }
          warpgroup_sync(consumer);
          if (thread == 0) *flag = 0;
          unit = other_end;
        }
      }
      const int64_t first_row = (tile * kCluster + rank) * kTileRows + consumer * (kBlocks * 64) +
                                thread / 32 * 16 + lane / 4;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t row = first_row + b * 64 + half * 8;
          if (row >= p.out_features) continue;
          const float bias = p.bias == nullptr ? 0.0f : p.bias[row];
#pragma unroll
          for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int token = j * 8 + lane % 4 * 2 + i;
              if (token < p.num_tokens) {
                store_out(p.out, token * p.out_features + row, sum[b][j * 4 + half * 2 + i] + bias,
                          static_cast<Out*>(nullptr));
              }
            }
          }
        }
      }
      unit = piece_end;
    }
  }
  if constexpr (kCluster > 1) {
    __syncwarp();
    cluster_sync();  // no block leaves while the other may still write into its memory
  }
#endif
}

template <int kTokens, int kCluster, typename Out>
void launch(const GemmStreamArgs& args, const CudaContext& context, cudaStream_t stream) {
  using Shape = StreamShape<kTokens, kCluster>;
  const auto kernel = gemm_stream_kernel<kTokens, kCluster, Out>;
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(Shape::kSharedBytes)));
  const int grid = context.num_sms / kCluster * kCluster;
  auto* workspace = static_cast<std::byte*>(args.workspace);
  const StreamParams params{args.bias,
                            args.out,
                            reinterpret_cast<float*>(workspace + kFlagBytes),
                            reinterpret_cast<uint32_t*>(workspace),
                            args.out_features,
                            args.num_tokens,
                            ceil_div(args.out_features, kTileRows * kCluster),
                            ceil_div(args.in_features, kDepth)};
  const CUtensorMap w_map =
      make_matrix_map(context, args.w, static_cast<uint64_t>(args.out_features),
                      static_cast<uint64_t>(args.in_features), kTileRows);
  const CUtensorMap x_map =
      make_matrix_map(context, args.x, static_cast<uint64_t>(args.num_tokens),
                      static_cast<uint64_t>(args.in_features), kTokens / kCluster);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Shape::kSharedBytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = args.early_start ? 1 : 0;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = kCluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  ZIPAGE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params, w_map, x_map));
}

template <int kTokens, int kCluster>
void launch_out(const GemmStreamArgs& args, const CudaContext& context, cudaStream_t stream) {
  if (args.out_dtype == DType::kF32) {
    launch<kTokens, kCluster, float>(args, context, stream);
  } else {
    launch<kTokens, kCluster, bf16>(args, context, stream);
  }
}

}  // namespace

bool gemm_stream_takes(const GemmStreamArgs& args, const CudaContext& context) {
  constexpr size_t kPartial = size_t{kTileRows} * kMaxStreamTokens * sizeof(float);
  return context.is_hopper() && args.num_tokens <= kMaxStreamTokens && args.in_features % 8 == 0 &&
         args.workspace_bytes >= kFlagBytes + static_cast<size_t>(context.num_sms) * kPartial;
}

void launch_gemm_stream(const GemmStreamArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream) {
  const bool pair = args.cluster == 2;
  if (args.num_tokens <= 8) return launch_out<8, 1>(args, context, stream);
  if (args.num_tokens <= 16) return launch_out<16, 1>(args, context, stream);
  if (args.num_tokens <= 32) return launch_out<32, 1>(args, context, stream);
  if (args.num_tokens <= 64) {
    return pair ? launch_out<64, 2>(args, context, stream)
                : launch_out<64, 1>(args, context, stream);
  }
  if (args.num_tokens <= 96) {
    return pair ? launch_out<96, 2>(args, context, stream)
                : launch_out<96, 1>(args, context, stream);
  }
  if (args.num_tokens <= 128) {
    return pair ? launch_out<128, 2>(args, context, stream)
                : launch_out<128, 1>(args, context, stream);
  }
  if (args.num_tokens <= 160) {
    return pair ? launch_out<160, 2>(args, context, stream)
                : launch_out<160, 1>(args, context, stream);
  }
  return pair ? launch_out<192, 2>(args, context, stream)
              : launch_out<192, 1>(args, context, stream);
}

}  // namespace zipage
