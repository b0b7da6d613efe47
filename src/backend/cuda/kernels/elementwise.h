// Launchers of the elementwise ops.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

void launch_silu_mul(const SiluMulArgs& args, const CudaContext& context, cudaStream_t stream);

// out[t, i] += bias[i]
struct AddBiasArgs {
  DType dtype;        // of out
  const float* bias;  // [features]
  int32_t num_tokens;
  int64_t features;
  void* out;  // [T, features]
};
void launch_add_bias(const AddBiasArgs& args, const CudaContext& context, cudaStream_t stream);

}  // namespace zipage
