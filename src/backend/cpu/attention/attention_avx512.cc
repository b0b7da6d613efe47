#if defined(__x86_64__)
#define ZIPAGE_SIMD_AVX512
#endif
#include "backend/cpu/attention/attention_body.h"

namespace zipage::cpu {
const AttentionKernels& attention_kernels_avx512() { return kAttentionKernels; }
}  // namespace zipage::cpu
