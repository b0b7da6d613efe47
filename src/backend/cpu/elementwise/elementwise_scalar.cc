#include "backend/cpu/elementwise/elementwise_body.h"

namespace zipage::cpu {
const ElementwiseKernels& elementwise_kernels_scalar() { return kElementwiseKernels; }
}  // namespace zipage::cpu
