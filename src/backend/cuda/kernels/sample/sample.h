// Launcher of the sampler (backend/ops/sampling.h).
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

size_t sample_kernel_workspace_bytes(const Backend::Limits& limits, const CudaContext& context);
void launch_sample(const SampleArgs& args, const CudaContext& context, cudaStream_t stream);

}  // namespace zipage
