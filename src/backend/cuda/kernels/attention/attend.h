// Backend::attend() of a decode step with few rows in one kernel.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

// Whether dtypes and shape fit and the rows are few. The two arguments are those of one attend().
bool attend_kernel_takes(const AttentionPrepareArgs& prepare, const PagedAttentionArgs& attention);
// `counters`: one for each row and KV head, 0 between kernels.
void launch_attend(const AttentionPrepareArgs& prepare,
                   const PagedAttentionArgs& attention,
                   uint32_t* counters,
                   const CudaContext& context,
                   cudaStream_t stream);

}  // namespace zipage
