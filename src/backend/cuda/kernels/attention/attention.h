// Launcher of paged_attention (backend/ops/transformer.h) and the parts it chooses from.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

size_t paged_attention_workspace_bytes(const Backend::Limits& limits, const CudaContext& context);
void launch_paged_attention(const PagedAttentionArgs& args,
                            const CudaContext& context,
                            cudaStream_t stream);

// Any dtypes, any head_dim <= 256: one block a (token, head), blocks of the table in order. The f32
// path, and what the tensor-core kernels do not take.
void launch_paged_attention_plain(const PagedAttentionArgs& args,
                                  const CudaContext& context,
                                  cudaStream_t stream);

}  // namespace zipage
