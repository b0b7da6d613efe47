#include "backend/cpu/runtime/kernel_set.h"

namespace zipage::cpu {

#define ZIPAGE_KERNEL_SET(isa)                                                             \
  namespace isa {                                                                          \
  extern const AttentionKernels kAttention;                                                \
  extern const CompressionKernels kCompression;                                            \
  extern const ElementwiseKernels kElementwise;                                            \
  extern const GemmKernels kGemm;                                                          \
  extern const SampleKernels kSample;                                                      \
  constexpr KernelSet kKernels = {kAttention, kCompression, kElementwise, kGemm, kSample}; \
  }

ZIPAGE_KERNEL_SET(scalar)
#if defined(__x86_64__)
ZIPAGE_KERNEL_SET(avx2)
ZIPAGE_KERNEL_SET(avx512)
#endif

const KernelSet& kernel_set(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return avx512::kKernels;
  if (isa == Isa::kAvx2) return avx2::kKernels;
#endif
  static_cast<void>(isa);
  return scalar::kKernels;
}

}  // namespace zipage::cpu
