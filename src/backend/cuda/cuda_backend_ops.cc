// The ops of CudaBackend: arguments checked, then one launcher each.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/kernels/attention/attend.h"
#include "backend/cuda/kernels/attention/attention.h"
#include "backend/cuda/kernels/attention/prepare.h"
#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/elementwise/embed.h"
#include "backend/cuda/kernels/elementwise/norm.h"
#include "backend/cuda/kernels/elementwise/silu_mul.h"
#include "backend/cuda/kernels/sample/sample.h"
#include "base/check.h"

namespace zipage {

size_t CudaBackend::attention_workspace_bytes(const Limits& limits) const {
  return paged_attention_workspace_bytes(limits, context_);
}

size_t CudaBackend::sample_workspace_bytes(const Limits& limits) const {
  return sample_kernel_workspace_bytes(limits, context_);
}

size_t CudaBackend::compression_workspace_bytes(const Limits& limits,
                                                const CompressionOptions& options) const {
  return compression_kernel_workspace_bytes(limits, options, context_);
}

void CudaBackend::embed(const EmbedArgs& args, Stream& stream) {
  if (args.num_tokens == 0) return;
  const auto& table = static_cast<const CudaLinearWeight&>(*args.table);
  ZIPAGE_CHECK_EQ(table.in_features(), args.hidden);
  ZIPAGE_CHECK_EQ(static_cast<int>(args.dtype), static_cast<int>(dtype_));
  launch_embed({args.dtype, table.data(), args.ids, args.previous_tokens, args.num_tokens,
                args.hidden, args.out},
               context_, cuda_stream(stream).handle());
}

void CudaBackend::linear(const LinearArgs& args, Stream& stream) {
  if (args.num_tokens == 0) return;
  linear_->run(args, cuda_stream(stream));
}

void CudaBackend::attend(const AttentionPrepareArgs& prepare,
                         const PagedAttentionArgs& attention,
                         Stream& stream) {
  if (!attend_kernel_takes(prepare, attention)) return Backend::attend(prepare, attention, stream);
  const CudaStream& own = cuda_stream(stream);
  ZIPAGE_CHECK_LE(attention.batch->num_rows * attention.kv->num_kv_heads, CudaStream::kNumCounters);
  launch_attend(prepare, attention, own.counters(), context_, own.handle());
}

#define ZIPAGE_CUDA_OP(name, Args)                               \
  void CudaBackend::name(const Args& args, Stream& stream) {     \
    launch_##name(args, context_, cuda_stream(stream).handle()); \
  }

ZIPAGE_CUDA_OP(rms_norm, RmsNormArgs)
ZIPAGE_CUDA_OP(silu_mul, SiluMulArgs)
ZIPAGE_CUDA_OP(gather_rows, GatherRowsArgs)
ZIPAGE_CUDA_OP(attention_prepare, AttentionPrepareArgs)
ZIPAGE_CUDA_OP(paged_attention, PagedAttentionArgs)
ZIPAGE_CUDA_OP(sample, SampleArgs)
ZIPAGE_CUDA_OP(attention_score, AttentionScoreArgs)
ZIPAGE_CUDA_OP(global_score, GlobalScoreArgs)
ZIPAGE_CUDA_OP(max_pool, MaxPoolArgs)
ZIPAGE_CUDA_OP(redundancy, RedundancyArgs)
ZIPAGE_CUDA_OP(center_redundancy, CenterRedundancyArgs)
ZIPAGE_CUDA_OP(normalized_history, NormalizedHistoryArgs)
ZIPAGE_CUDA_OP(combine, CombineArgs)
ZIPAGE_CUDA_OP(plain_score, PlainScoreArgs)
ZIPAGE_CUDA_OP(protect, ProtectArgs)
ZIPAGE_CUDA_OP(top_k, TopKArgs)
ZIPAGE_CUDA_OP(compact, CompactArgs)
ZIPAGE_CUDA_OP(peak_update, PeakUpdateArgs)

#undef ZIPAGE_CUDA_OP

}  // namespace zipage
