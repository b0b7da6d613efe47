// Ops of compression that have no kernel yet: each says so when called.
#include "backend/cuda/kernels/compression.h"
#include "base/error.h"

namespace zipage {

size_t compression_kernel_workspace_bytes(const Backend::Limits&,
                                          const CompressionOptions&,
                                          const CudaContext&) {
  return 0;
}

#define ZIPAGE_PENDING(name, Args)                                        \
  void launch_##name(const Args&, const CudaContext&, cudaStream_t) {     \
    fail(StatusCode::kUnimplemented, "op " #name ": no CUDA kernel yet"); \
  }

ZIPAGE_PENDING(attention_score, AttentionScoreArgs)
ZIPAGE_PENDING(global_score, GlobalScoreArgs)
ZIPAGE_PENDING(max_pool, MaxPoolArgs)
ZIPAGE_PENDING(redundancy, RedundancyArgs)
ZIPAGE_PENDING(center_redundancy, CenterRedundancyArgs)
ZIPAGE_PENDING(normalized_history, NormalizedHistoryArgs)
ZIPAGE_PENDING(combine, CombineArgs)
ZIPAGE_PENDING(plain_score, PlainScoreArgs)
ZIPAGE_PENDING(protect, ProtectArgs)
ZIPAGE_PENDING(top_k, TopKArgs)
ZIPAGE_PENDING(compact, CompactArgs)
ZIPAGE_PENDING(peak_update, PeakUpdateArgs)

#undef ZIPAGE_PENDING

}  // namespace zipage
