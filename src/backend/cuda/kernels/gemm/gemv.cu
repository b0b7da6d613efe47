// out = x W^T for one to four tokens, bf16, Hopper: a GEMV that streams the weights.
//
// Idea: the time is that of reading W once. Rows of W are dealt to the warps of a grid that fills the device. Each warp streams
// its own rows, in pieces, through its own stages of shared memory with bulk asynchronous copies: no warp waits for another,
// and nothing is split over blocks. W depends on no kernel ahead of this one, so that all stages are on their way before x is
// ready: while a small kernel ahead ends, memory keeps busy. What is idle at this kernel's own end, when nothing is left to
// load and the next GEMM is not on the SM yet, prefetches the beginning of the next GEMM's weights into the L2.
//
// Cost of a layer of Qwen3-8B, one token: 386 MB, 0.090 ms at 4.27 TB/s; 0.77 GFLOP.
// Measured (H200, 2026-11-29, script/bench-gpu linear), one token: qkv 12.8 us (92 %), o 10.2 (77 %), gate_up 47 (100 %), down
// 24 (98 %), where cuBLASLt takes 16.9, 12.7, 48 and 28. In the step the early start and the prefetch are worth about 5 us
// more a GEMM, which timing it alone does not show.
// Tried and dropped: gemm_stream for one token (4.59 ms a token of the whole model instead of 4.12).
#include "backend/cuda/kernels/common/async.cuh"
#include "backend/cuda/kernels/common/reduce.cuh"
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/gemm/gemm.h"

namespace zipage {

namespace {

constexpr int kWarps = 8;
constexpr int kMaxPiece = 2048;      // elements of a row that one copy brings
constexpr int kPieceMultiple = 256;  // a vector of 8 for each lane
constexpr int kMaxStages = 16;
constexpr int kMinStages = 2;
// A warp's share of the next weights' beginning; all together about what memory brings in 2 us.
[[maybe_unused]] constexpr int64_t kNextBytes = 8192;  // on sm_90 alone

struct GemvParams {
  const bf16* w;          // [out_features, in_features]
  const bf16* x;          // [num_tokens, in_features]
  const float* bias;      // [out_features] or null
  void* out;              // [num_tokens, out_features]
  const std::byte* next;  // the next GEMM's weights, or null
  int64_t next_bytes;
  int64_t out_features;
  int32_t in_features;
  int32_t num_tokens;
  int32_t piece;   // elements
  int32_t pieces;  // of a row
  int32_t stages;  // of a warp
  bool out_is_f32;
};

// Before sm_90 the kernel below has no body to use them in.
[[maybe_unused]] __device__ inline float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
[[maybe_unused]] __device__ inline float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

template <int kTokens>
__global__ void __launch_bounds__(kWarps * 32, 1) gemv_kernel(const GemvParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int stage_bytes = p.piece * 2;
  std::byte* const stages = shared + static_cast<int64_t>(warp) * p.stages * stage_bytes;
  std::byte* const after = shared + static_cast<int64_t>(kWarps) * p.stages * stage_bytes;
  const uint32_t barriers = shared_address(after) + static_cast<uint32_t>(warp * kMaxStages * 8);
  bf16* const x_shared = reinterpret_cast<bf16*>(after + kWarps * kMaxStages * 8);

  // Neighbouring blocks take neighbouring rows.
  const int64_t workers = static_cast<int64_t>(gridDim.x) * kWarps;
  const int64_t worker = static_cast<int64_t>(warp) * gridDim.x + blockIdx.x;
  const int rows = worker < p.out_features
                       ? static_cast<int>((p.out_features - worker + workers - 1) / workers)
                       : 0;
  const int units = rows * p.pieces;
  if (lane == 0) {
    for (int s = 0; s < p.stages; ++s) mbarrier_init(barriers + 8 * static_cast<uint32_t>(s), 1);
    mbarrier_init_fence();
  }
  __syncwarp();
  const uint64_t once = policy_evict_first();
  int issued = 0, issue_piece = 0;
  int64_t issue_row = worker;
  bool next_is_due = p.next != nullptr;
  // The next piece into `stage`; past the end, once, the warp's share of the next GEMM. Lane 0's
  // work.
  const auto issue = [&](int stage) {
    if (lane != 0) return;
    if (issued == units) {
      const int64_t at = worker * kNextBytes;
      if (next_is_due && at < p.next_bytes) {
        bulk_prefetch_l2(p.next + at, static_cast<uint32_t>(min(kNextBytes, p.next_bytes - at)));
      }
      next_is_due = false;
      return;
    }
    const int begin = issue_piece * p.piece;
    const int count = min(p.piece, p.in_features - begin);
    const uint32_t barrier = barriers + 8 * static_cast<uint32_t>(stage);
    mbarrier_expect(barrier, static_cast<uint32_t>(count * 2));
    bulk_load(shared_address(stages + stage * stage_bytes), p.w + issue_row * p.in_features + begin,
              static_cast<uint32_t>(count * 2), barrier, once);
    ++issued;
    if (++issue_piece == p.pieces) {
      issue_piece = 0;
      issue_row += workers;
    }
  };
  for (int s = 0; s < p.stages; ++s) issue(s);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int vectors = p.in_features / 8;
#pragma unroll
  for (int token = 0; token < kTokens; ++token) {
    const auto* from = reinterpret_cast<const uint4*>(p.x + int64_t{token} * p.in_features);
    auto* to = reinterpret_cast<uint4*>(x_shared + int64_t{token} * p.in_features);
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kWarps * 32) {
      to[i] = token < p.num_tokens ? from[i] : make_uint4(0, 0, 0, 0);
    }
  }
  __syncthreads();

  float sum[kTokens][2] = {};  // of even and of odd k
  int stage = 0, piece = 0;
  uint32_t parity = 0;
  int64_t row = worker;
  for (int unit = 0; unit < units; ++unit) {
    const int begin = piece * p.piece;
    const int count = min(p.piece, p.in_features - begin);
    const auto* w = reinterpret_cast<const uint4*>(stages + stage * stage_bytes);
    const auto* x = reinterpret_cast<const uint4*>(x_shared + begin);
    mbarrier_wait(barriers + 8 * static_cast<uint32_t>(stage), parity);
#pragma unroll 4
    for (int i = lane; i < count / 8; i += 32) {
      const uint4 four = w[i];
      const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int token = 0; token < kTokens; ++token) {
        const uint4 others = x[token * vectors + i];
        const uint32_t x_pairs[4] = {others.x, others.y, others.z, others.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[token][0] = fmaf(low_half(pairs[j]), low_half(x_pairs[j]), sum[token][0]);
          sum[token][1] = fmaf(high_half(pairs[j]), high_half(x_pairs[j]), sum[token][1]);
        }
      }
    }
    __syncwarp();  // every lane has read the stage
    issue(stage);
    if (++stage == p.stages) {
      stage = 0;
      parity ^= 1;
    }
    if (++piece < p.pieces) continue;
    piece = 0;
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      float value = warp_sum(sum[token][0] + sum[token][1]);
      sum[token][0] = sum[token][1] = 0;
      if (lane == token && token < p.num_tokens) {
        if (p.bias != nullptr) value += p.bias[row];
        const int64_t place = token * p.out_features + row;
        if (p.out_is_f32) {
          static_cast<float*>(p.out)[place] = value;
        } else {
          static_cast<bf16*>(p.out)[place] = from_float<bf16>(value);
        }
      }
    }
    row += workers;
  }
#endif
}

struct GemvShape {
  int piece, pieces, stages, tokens;
  size_t shared_bytes;
};

// stages 0: x leaves no room for weights.
GemvShape gemv_shape(const GemmStreamArgs& args, const CudaContext& context) {
  GemvShape s{};
  s.tokens = args.num_tokens <= 2 ? args.num_tokens : kMaxGemvTokens;
  s.pieces = num_parts(args.in_features, kMaxPiece);
  s.piece = num_parts(args.in_features, int64_t{s.pieces} * kPieceMultiple) * kPieceMultiple;
  const size_t fixed = size_t{kWarps} * kMaxStages * 8 +
                       static_cast<size_t>(s.tokens) * static_cast<size_t>(args.in_features) * 2;
  const size_t stage = size_t{kWarps} * static_cast<size_t>(s.piece) * 2;
  if (context.max_shared_bytes < fixed) return s;
  const size_t fit = (context.max_shared_bytes - fixed) / stage;
  s.stages = static_cast<int>(fit < kMaxStages ? fit : kMaxStages);
  s.shared_bytes = fixed + static_cast<size_t>(s.stages) * stage;
  return s;
}

template <int kTokens>
void launch(const GemmStreamArgs& args,
            const GemvShape& shape,
            const CudaContext& context,
            cudaStream_t stream) {
  const auto kernel = gemv_kernel<kTokens>;
  ZIPAGE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shape.shared_bytes)));
  const GemvParams params{static_cast<const bf16*>(args.w),
                          static_cast<const bf16*>(args.x),
                          args.bias,
                          args.out,
                          static_cast<const std::byte*>(args.next),
                          args.next_bytes / 16 * 16,
                          args.out_features,
                          static_cast<int32_t>(args.in_features),
                          args.num_tokens,
                          shape.piece,
                          shape.pieces,
                          shape.stages,
                          args.out_dtype == DType::kF32};
  const int64_t most = num_parts(args.out_features, kWarps);
  const auto blocks = static_cast<unsigned>(most < context.num_sms ? most : context.num_sms);
  ZIPAGE_CUDA_CHECK(launch_kernel(kernel, dim3(blocks), dim3(kWarps * 32), shape.shared_bytes,
                                  stream, args.early_start, params));
}

}  // namespace

bool gemv_takes(const GemmStreamArgs& args, const CudaContext& context) {
  return context.is_hopper() && args.num_tokens <= kMaxGemvTokens && args.in_features % 8 == 0 &&
         args.in_features < (int64_t{1} << 24) && gemv_shape(args, context).stages >= kMinStages;
}

void launch_gemv(const GemmStreamArgs& args, const CudaContext& context, cudaStream_t stream) {
  const GemvShape shape = gemv_shape(args, context);
  if (shape.tokens == 1) return launch<1>(args, shape, context, stream);
  if (shape.tokens == 2) return launch<2>(args, shape, context, stream);
  launch<kMaxGemvTokens>(args, shape, context, stream);
}

}  // namespace zipage
