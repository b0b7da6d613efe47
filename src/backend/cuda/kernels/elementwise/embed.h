// Launcher of embed (backend/ops/transformer.h).
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/ops/transformer.h"

namespace zipage {

// out[t, :] = table[id, :], both of `dtype`; id is ids[t], or previous_tokens[-1 - ids[t]] if
// ids[t] is negative.
struct EmbedKernelArgs {
  DType dtype;
  const void* table;               // [vocab, hidden]
  const int32_t* ids;              // [T]
  const int32_t* previous_tokens;  // or null
  int32_t num_tokens;
  int32_t hidden;
  void* out;  // [T, hidden]
};
void launch_embed(const EmbedKernelArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_gather_rows(const GatherRowsArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream);

}  // namespace zipage
