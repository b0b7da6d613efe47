// Launchers of the elementwise ops.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

void launch_silu_mul(const SiluMulArgs& args, const CudaContext& context, cudaStream_t stream);

// Reads memory and drops it: what was in the L2 before is gone. `bytes` is a multiple of 4,096.
void launch_read_through(const void* data, size_t bytes, cudaStream_t stream);

}  // namespace zipage
