// Passes over a row of logits, by ISA (sample_kernels.cc). Sums run over runs of kSampleRun elements
// in f32 lanes, the runs in double and in order.
#pragma once

#include <cstdint>

namespace zipage::cpu {

inline constexpr int64_t kSampleRun = 256;

struct SampleKernels {
  // Index of the largest value, the lowest of equals. NaN counts as -inf; -1 when all are -inf.
  int32_t (*argmax)(const float* x, int64_t count);
  // In place: NaN becomes -inf, +inf the largest finite number.
  void (*make_finite)(float* x, int64_t count);
  float (*max)(const float* x, int64_t count);
  // weights[i] = e^((x[i] - top) * scale), 0 below `least`; returns their sum. x <= top, no NaN;
  // weights may be null.
  double (*softmax_weights)(
      const float* x, int64_t count, float top, float scale, float least, float* weights);
  double (*sum)(const float* x, int64_t count);
};

}  // namespace zipage::cpu
