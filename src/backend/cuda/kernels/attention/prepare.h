// Launcher of attention_prepare (backend/ops/transformer.h).
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

void launch_attention_prepare(const AttentionPrepareArgs& args,
                              const CudaContext& context,
                              cudaStream_t stream);

}  // namespace zipage
