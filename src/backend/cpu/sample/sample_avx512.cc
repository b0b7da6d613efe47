#if defined(__x86_64__)
#define ZIPAGE_SIMD_AVX512
#endif
#include "backend/cpu/sample/sample_body.h"

namespace zipage::cpu {
const SampleKernels& sample_kernels_avx512() { return kSampleKernels; }
}  // namespace zipage::cpu
