#if defined(__x86_64__)
#define ZIPAGE_SIMD_AVX2
#endif
#include "backend/cpu/sample/sample_body.h"

namespace zipage::cpu {
const SampleKernels& sample_kernels_avx2() { return kSampleKernels; }
}  // namespace zipage::cpu
