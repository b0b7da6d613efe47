// Launchers of the products of linear() that are our own. kernels/elementwise.h has the bias.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/kernels/elementwise.h"

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

}  // namespace zipage
