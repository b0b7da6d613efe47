// Ops that are not written yet say so. Each moves to the file of its family: sample.cc.
#include "backend/cpu/ops.h"
#include "base/error.h"

namespace zipage::cpu {

size_t sample_workspace_bytes(const Backend::Limits&, const CpuContext&) { return 0; }
void sample(const SampleArgs&, CpuContext&) { fail(StatusCode::kUnimplemented, "sample on a CPU"); }

}  // namespace zipage::cpu
