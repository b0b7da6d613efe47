#include "backend/cpu/sample/sample_body.h"

namespace zipage::cpu {
const SampleKernels& sample_kernels_scalar() { return kSampleKernels; }
}  // namespace zipage::cpu
