#if defined(__x86_64__)
#define ZIPAGE_SIMD_AVX2
#endif
#include "backend/cpu/elementwise/elementwise_body.h"

namespace zipage::cpu {
const ElementwiseKernels& elementwise_kernels_avx2() { return kElementwiseKernels; }
}  // namespace zipage::cpu
