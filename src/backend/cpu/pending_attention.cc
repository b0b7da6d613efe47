// Ops that are not written yet say so. Each moves to the file of its family: attention.cc,
// sample.cc.
#include "backend/cpu/ops.h"
#include "base/error.h"

namespace zipage::cpu {

size_t attention_workspace_bytes(const Backend::Limits&, const CpuContext&) { return 0; }
size_t sample_workspace_bytes(const Backend::Limits&, const CpuContext&) { return 0; }

void attention_prepare(const AttentionPrepareArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "attention_prepare on a CPU");
}
void paged_attention(const PagedAttentionArgs&, CpuContext&) {
  fail(StatusCode::kUnimplemented, "paged_attention on a CPU");
}
void sample(const SampleArgs&, CpuContext&) { fail(StatusCode::kUnimplemented, "sample on a CPU"); }

}  // namespace zipage::cpu
