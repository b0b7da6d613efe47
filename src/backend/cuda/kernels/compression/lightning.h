// Lightning redundancy on Hopper; redundancy.cu takes what this does not.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage::compression {

// False where the device or the shape is not for this kernel; nothing has been enqueued then.
bool launch_lightning(const RedundancyArgs& args, const CudaContext& context, cudaStream_t stream);

}  // namespace zipage::compression
