// out = x W^T + bias in f32: the reference path, in which each output element is one sum over k in ascending order, whatever the
// number of tokens, so that a row's result does not depend on its batch.
//
// Idea: a block has a tile of 64 features x 32 tokens, a thread 4 x 4 of them; W and x pass through shared memory, 32 of k at a
// time. Correct for every shape, not tuned: f32 serves tests and comparisons. Bound by f32 arithmetic from a few tokens on.
// Not measured.
#include "backend/cuda/kernels/common/types.cuh"
#include "backend/cuda/kernels/gemm/gemm.h"

namespace zipage {

namespace {

constexpr int kTileRows = 64;    // output features a block
constexpr int kTileTokens = 32;  // tokens a block
constexpr int kDepth = 32;       // k a stage
constexpr int kThreads = 128;    // 16 x 8, each 4 features x 4 tokens

__global__ void __launch_bounds__(kThreads) gemm_f32_kernel(GemmF32Args p) {
  __shared__ float w_shared[kDepth][kTileRows + 1];
  __shared__ float x_shared[kDepth][kTileTokens + 1];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTileRows;
  const int64_t first_token = static_cast<int64_t>(blockIdx.y) * kTileTokens;
  const int thread = static_cast<int>(threadIdx.x);
  const int row_place = thread % 16;
  const int token_place = thread / 16;
  float sum[4][4] = {};
  for (int64_t k0 = 0; k0 < p.in_features; k0 += kDepth) {
    for (int i = thread; i < kTileRows * kDepth; i += kThreads) {
      const int64_t row = first_row + i / kDepth;
      const int64_t k = k0 + i % kDepth;
      w_shared[i % kDepth][i / kDepth] =
          row < p.out_features && k < p.in_features ? p.w[row * p.in_features + k] : 0.0f;
    }
    for (int i = thread; i < kTileTokens * kDepth; i += kThreads) {
      const int64_t token = first_token + i / kDepth;
      const int64_t k = k0 + i % kDepth;
      x_shared[i % kDepth][i / kDepth] =
          token < p.num_tokens && k < p.in_features ? p.x[token * p.in_features + k] : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kDepth; ++k) {
      float w[4];
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = w_shared[k][row_place + 16 * i];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = x_shared[k][token_place + 8 * j];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(w[i], x[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t token = first_token + token_place + 8 * j;
    if (token >= p.num_tokens) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + row_place + 16 * i;
      if (row >= p.out_features) continue;
      const float bias = p.bias == nullptr ? 0.0f : p.bias[row];
      p.out[token * p.out_features + row] = sum[i][j] + bias;
    }
  }
}

}  // namespace

void launch_gemm_f32(const GemmF32Args& args, const CudaContext&, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  const dim3 grid(num_parts(args.out_features, kTileRows), num_parts(args.num_tokens, kTileTokens));
  gemm_f32_kernel<<<grid, kThreads, 0, stream>>>(args);
  ZIPAGE_CUDA_CHECK_LAUNCH("gemm_f32");
}

}  // namespace zipage
