// RMSNorm with the residual, and SiLU times up.
//
// Idea: a row at a time, in four independent sums, or the latency of an addition would set the pace.
//
// Cost of a row of 1,024: RMSNorm reads 12 KB and writes 8 KB, SiLU of 3,072 reads 24 KB and writes 12
// KB and takes 15 operations an element for its exponential. All of it lies in the cache: both are
// far below the GEMMs around them.
#include "backend/cpu/elementwise/elementwise_kernels.h"

#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

void rms_norm_row(
    const float* x, float* residual, const float* weight, float eps, int64_t count, float* out) {
  constexpr int kSums = 4;  // independent, or the latency of one addition would set the pace
  constexpr int64_t kStep = kSums * kWidth;
  Vec squares[kSums];
  for (Vec& square : squares) square = zero();
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (int s = 0; s < kSums; ++s) {
      const int64_t at = i + s * kWidth;
      Vec r = load(x + at);
      if (residual != nullptr) {
        r = r + load(residual + at);
        store(residual + at, r);
      }
      squares[s] = fma(r, r, squares[s]);
    }
  }
  float total = sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  for (; i < count; ++i) {
    float r = x[i];
    if (residual != nullptr) {
      r += residual[i];
      residual[i] = r;
    }
    total += r * r;
  }
  const float* r = residual != nullptr ? residual : x;
  const float inverse = 1.0f / __builtin_sqrtf(total / static_cast<float>(count) + eps);
  for (i = 0; i + kWidth <= count; i += kWidth) {
    store(out + i, load(r + i) * splat(inverse) * load(weight + i));
  }
  for (; i < count; ++i) out[i] = r[i] * inverse * weight[i];
}

// silu(g) = g / (1 + e^-g). e^88 is the largest power kept: below -88 the quotient is as good as
// zero.
ZIPAGE_INLINE Vec silu(Vec gate) {
  return gate / (splat(1.0f) + exp(min(splat(88.0f), zero() - gate)));
}

void silu_mul_row(const float* gate, const float* up, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(out + i, silu(load(gate + i)) * load(up + i));
  if (i < count) {
    float g[kWidth] = {}, u[kWidth] = {}, o[kWidth];
    const int rest = static_cast<int>(count - i);
    for (int k = 0; k < rest; ++k) {
      g[k] = gate[i + k];
      u[k] = up[i + k];
    }
    store(o, silu(load(g)) * load(u));
    for (int k = 0; k < rest; ++k) out[i + k] = o[k];
  }
}

}  // namespace

namespace ZIPAGE_ISA {
extern const ElementwiseKernels kElementwise = {rms_norm_row, silu_mul_row};
}  // namespace ZIPAGE_ISA
}  // namespace zipage::cpu
