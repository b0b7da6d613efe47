#include "backend/cpu/compression/kernels.h"

namespace zipage::cpu {

const CompressionKernels& compression_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kCompressionAvx512;
  if (isa >= Isa::kAvx2) return kCompressionAvx2;
#else
  static_cast<void>(isa);
#endif
  return kCompressionPortable;
}

}  // namespace zipage::cpu
