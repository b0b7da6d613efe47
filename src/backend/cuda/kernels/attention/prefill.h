// The kernel of paged_attention for rows of several tokens.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

// Queries of a block: kFourWarps 128, kEightWarps 256 (head_dim up to 128). kDefault chooses by the
// longest row.
enum class PrefillVariant { kDefault, kFourWarps, kEightWarps };

bool prefill_kernel_takes(const PagedAttentionArgs& args);
// All rows, or with `skip_single` those of more than one token; the others are left alone.
void launch_paged_attention_prefill(const PagedAttentionArgs& args,
                                    bool skip_single,
                                    const CudaContext& context,
                                    cudaStream_t stream,
                                    PrefillVariant variant = PrefillVariant::kDefault);

}  // namespace zipage
