// The CPU's ops as free functions: one a contract op (backend/ops/*.h says what each does). They
// run to the end on the calling thread and the threads of context.pool, and throw Error on bad
// arguments.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "backend/cpu/runtime/context.h"

namespace zipage::cpu {

void embed(const EmbedArgs& args, CpuContext& context);
void rms_norm(const RmsNormArgs& args, CpuContext& context);
void linear(const LinearArgs& args, CpuContext& context);
void silu_mul(const SiluMulArgs& args, CpuContext& context);
void gather_rows(const GatherRowsArgs& args, CpuContext& context);

size_t attention_workspace_bytes(const Backend::Limits& limits, const CpuContext& context);
void attention_prepare(const AttentionPrepareArgs& args, CpuContext& context);
void paged_attention(const PagedAttentionArgs& args, CpuContext& context);

size_t sample_workspace_bytes(const Backend::Limits& limits, const CpuContext& context);
void sample(const SampleArgs& args, CpuContext& context);

size_t compression_workspace_bytes(const Backend::Limits& limits,
                                   const CompressionOptions& options,
                                   const CpuContext& context);
void attention_score(const AttentionScoreArgs& args, CpuContext& context);
void global_score(const GlobalScoreArgs& args, CpuContext& context);
void max_pool(const MaxPoolArgs& args, CpuContext& context);
void redundancy(const RedundancyArgs& args, CpuContext& context);
void center_redundancy(const CenterRedundancyArgs& args, CpuContext& context);
void normalized_history(const NormalizedHistoryArgs& args, CpuContext& context);
void combine(const CombineArgs& args, CpuContext& context);
void plain_score(const PlainScoreArgs& args, CpuContext& context);
void protect(const ProtectArgs& args, CpuContext& context);
void top_k(const TopKArgs& args, CpuContext& context);
void compact(const CompactArgs& args, CpuContext& context);
void peak_update(const PeakUpdateArgs& args, CpuContext& context);

}  // namespace zipage::cpu
