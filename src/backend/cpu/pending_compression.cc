// Ops of compression that are not written yet say so. Each moves to compression/.
#include "backend/cpu/ops.h"
#include "base/error.h"

namespace zipage::cpu {

size_t compression_workspace_bytes(const Backend::Limits&,
                                   const CompressionOptions&,
                                   const CpuContext&) {
  return 0;
}

void attention_score(const AttentionScoreArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "attention_score on a CPU");
}
void global_score(const GlobalScoreArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "global_score on a CPU");
}
void max_pool(const MaxPoolArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "max_pool on a CPU");
}
void redundancy(const RedundancyArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "redundancy on a CPU");
}
void center_redundancy(const CenterRedundancyArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "center_redundancy on a CPU");
}
void normalized_history(const NormalizedHistoryArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "normalized_history on a CPU");
}
void combine(const CombineArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "combine on a CPU");
}
void plain_score(const PlainScoreArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "plain_score on a CPU");
}
void protect(const ProtectArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "protect on a CPU");
}
void top_k(const TopKArgs&, CpuContext&) { fail(StatusCode::kUnimplemented, "top_k on a CPU"); }
void compact(const CompactArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "compact on a CPU");
}
void peak_update(const PeakUpdateArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "peak_update on a CPU");
}

}  // namespace zipage::cpu
