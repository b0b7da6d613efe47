// paged_attention: chooses among decode.cu (rows of one token), prefill.cu (longer rows) and plain.cu (everything else). A mixed
// batch takes both of the first two; each leaves the other's rows alone.
#include "backend/cuda/kernels/attention/attention.h"
#include "backend/cuda/kernels/attention/decode.h"
#include "backend/cuda/kernels/attention/prefill.h"

namespace zipage {

size_t paged_attention_workspace_bytes(const Backend::Limits& limits, const CudaContext& context) {
  return decode_workspace_bytes(limits.max_rows, limits.num_q_heads, limits.num_kv_heads,
                                limits.head_dim, context);
}

void launch_paged_attention(const PagedAttentionArgs& args,
                            const CudaContext& context,
                            cudaStream_t stream) {
  const StepBatch& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  if (!prefill_kernel_takes(args)) return launch_paged_attention_plain(args, context, stream);
  const bool all_single = batch.max_row_tokens == 1 || batch.num_tokens == batch.num_rows;
  const bool may_have_single = all_single || batch.num_rows > 1;
  const bool decode = may_have_single && decode_kernel_takes(args);
  if (decode) launch_paged_attention_decode(args, context, stream);
  if (!(decode && all_single)) launch_paged_attention_prefill(args, decode, context, stream);
}

}  // namespace zipage
