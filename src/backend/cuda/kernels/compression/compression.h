// Launchers of the ops of compression (backend/ops/compression.h). Each enqueues on `stream` and
// returns.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

size_t compression_kernel_workspace_bytes(const Backend::Limits& limits,
                                          const CompressionOptions& options,
                                          const CudaContext& context);

void launch_attention_score(const AttentionScoreArgs& args,
                            const CudaContext& context,
                            cudaStream_t stream);
void launch_global_score(const GlobalScoreArgs& args,
                         const CudaContext& context,
                         cudaStream_t stream);
void launch_max_pool(const MaxPoolArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_redundancy(const RedundancyArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_center_redundancy(const CenterRedundancyArgs& args,
                              const CudaContext& context,
                              cudaStream_t stream);
void launch_normalized_history(const NormalizedHistoryArgs& args,
                               const CudaContext& context,
                               cudaStream_t stream);
void launch_combine(const CombineArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_plain_score(const PlainScoreArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream);
void launch_protect(const ProtectArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_top_k(const TopKArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_compact(const CompactArgs& args, const CudaContext& context, cudaStream_t stream);
void launch_peak_update(const PeakUpdateArgs& args,
                        const CudaContext& context,
                        cudaStream_t stream);

}  // namespace zipage
