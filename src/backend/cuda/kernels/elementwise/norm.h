// Launcher of rms_norm (backend/ops/transformer.h).
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

void launch_rms_norm(const RmsNormArgs& args, const CudaContext& context, cudaStream_t stream);

}  // namespace zipage
