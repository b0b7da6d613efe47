// The decode kernel of paged_attention and its variants, for attention.cu and the bench.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

inline constexpr int32_t kMaxDecodeRows = 2048;  // their prefix sums lie in shared memory

// How the stages are cut and filled. kDefault chooses by the number of rows; kTensorCopy uses TMA
// (Hopper), for the bench (head_dim 128).
enum class DecodeVariant { kDefault, kFourWarps, kEightWarps, kTensorCopy };

// Whether dtypes and shape fit.
bool decode_kernel_takes(const PagedAttentionArgs& args);
size_t decode_workspace_bytes(int32_t max_rows,
                              int32_t num_q_heads,
                              int32_t num_kv_heads,
                              int32_t head_dim,
                              const CudaContext& context);
// Rows of one token; the others are left alone.
void launch_paged_attention_decode(const PagedAttentionArgs& args,
                                   const CudaContext& context,
                                   cudaStream_t stream,
                                   DecodeVariant variant = DecodeVariant::kDefault);

}  // namespace zipage
