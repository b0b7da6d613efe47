// The GEMMs of linear() that are our own; cuda_linear.cc chooses among them and cuBLASLt by timing a shape when it first comes.
//
// gemm_f32.cu: f32, any number of tokens. gemm_stream.cu: bf16 on Hopper, up to kMaxStreamTokens tokens, tensor cores. gemv.cu:
// bf16 on Hopper, up to kMaxGemvTokens tokens. All compute out = x W^T + bias and enqueue on `stream`.
//
//   if (gemv_takes(args, context)) launch_gemv(args, context, stream);
#pragma once

#include "backend/cuda/cuda_context.h"
#include "tensor/dtype.h"

namespace zipage {

// out = x W^T + bias in f32. Each output element is one sum over k ascending, whatever the number
// of tokens.
struct GemmF32Args {
  const float* w;     // [out_features, in_features]
  const float* x;     // [T, in_features]
  const float* bias;  // [out_features] or null
  float* out;         // [T, out_features]
  int32_t num_tokens;
  int64_t out_features;
  int64_t in_features;
};
void launch_gemm_f32(const GemmF32Args& args, const CudaContext& context, cudaStream_t stream);

// The same in bf16 with f32 sums for up to kMaxStreamTokens tokens on Hopper; in_features a
// multiple of 8.
inline constexpr int32_t kMaxStreamTokens = 192;
struct GemmStreamArgs {
  const void* w;      // [out_features, in_features] bf16
  const void* x;      // [T, in_features] bf16
  const float* bias;  // [out_features] or null
  void* out;          // [T, out_features] of out_dtype
  DType out_dtype;    // kBF16 or kF32
  int32_t num_tokens;
  int64_t out_features;
  int64_t in_features;
  void* workspace;  // its first 4,096 bytes are 0 between launches
  size_t workspace_bytes;
  int32_t rows;      // of a tile: 0: chosen, 128 or 192
  bool early_start;  // may start before the kernel ahead of it in the stream has finished
  const void* next;  // the weight of the next GEMM, or null
  int64_t next_bytes;
};
bool gemm_stream_takes(const GemmStreamArgs& args, const CudaContext& context);
void launch_gemm_stream(const GemmStreamArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream);

// The same for one to kMaxGemvTokens tokens, without tensor cores; needs no workspace.
inline constexpr int32_t kMaxGemvTokens = 4;
bool gemv_takes(const GemmStreamArgs& args, const CudaContext& context);
void launch_gemv(const GemmStreamArgs& args, const CudaContext& context, cudaStream_t stream);

}  // namespace zipage
