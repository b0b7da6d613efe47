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

void CudaBackend::launch_embed(const EmbedArgs& args,
                               const CudaContext& context,
                               CudaStream& stream) const {
  if (args.num_tokens == 0) return;
  const auto& table = static_cast<const CudaLinearWeight&>(*args.table);
  ZIPAGE_CHECK_EQ(table.in_features(), args.hidden);
  ZIPAGE_CHECK_EQ(static_cast<int>(args.dtype), static_cast<int>(dtype_));
  zipage::launch_embed({args.dtype, table.data(), args.ids, args.previous_tokens, args.num_tokens,
                        args.hidden, args.out},
                       context, stream);
}

void CudaBackend::launch_linear(const LinearArgs& args, const CudaContext&, CudaStream& stream) {
  if (args.num_tokens == 0) return;
  linear_->run(args, stream);
}

void CudaBackend::attend(const AttentionPrepareArgs& prepare,
                         const PagedAttentionArgs& attention,
                         Stream& stream) {
  if (!attend_kernel_takes(prepare, attention)) return Backend::attend(prepare, attention, stream);
  const CudaStream& own = cuda_stream(stream);
  ZIPAGE_CHECK_LE(attention.batch->num_rows * attention.kv->num_kv_heads, CudaStream::kNumCounters);
  launch_attend(prepare, attention, own.counters(), context_, own.handle());
}

#define ZIPAGE_DISPATCH_OP(name, Args)                       \
  void CudaBackend::name(const Args& args, Stream& stream) { \
    launch_##name(args, context_, cuda_stream(stream));      \
  }
ZIPAGE_OPS(ZIPAGE_DISPATCH_OP)
#undef ZIPAGE_DISPATCH_OP

}  // namespace zipage
