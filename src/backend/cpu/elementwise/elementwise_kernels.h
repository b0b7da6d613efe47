// Norms and element-wise kernels of one ISA, a row at a time (elementwise_kernels.cc). The order of a
// row's sums depends on its length alone.
#pragma once

#include <cstdint>

namespace zipage::cpu {

struct ElementwiseKernels {
  // residual (when not null) += x; out = r / sqrt(mean(r^2) + eps) * weight, r being that sum, or
  // x. out may alias x.
  void (*rms_norm)(
      const float* x, float* residual, const float* weight, float eps, int64_t count, float* out);
  // out = silu(gate) * up
  void (*silu_mul)(const float* gate, const float* up, int64_t count, float* out);
};

}  // namespace zipage::cpu
