#include "backend/cpu/attention/attention_body.h"

namespace zipage::cpu {
const AttentionKernels& attention_kernels_scalar() { return kAttentionKernels; }
}  // namespace zipage::cpu
