// Launchers of the ops of compression (backend/ops/compression.h). Each enqueues on `stream` and
// returns.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

size_t compression_kernel_workspace_bytes(const Backend::Limits& limits,
                                          const CompressionOptions& options,
                                          const CudaContext& context);

#define ZIPAGE_DECLARE_OP(name, Args) \
  void launch_##name(const Args& args, const CudaContext& context, cudaStream_t stream);
ZIPAGE_COMPRESSION_OPS(ZIPAGE_DECLARE_OP)
#undef ZIPAGE_DECLARE_OP

}  // namespace zipage
