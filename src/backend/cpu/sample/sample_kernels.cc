// The sampler's passes over a row of logits: argmax, maximum, softmax weights, sums.
//
// Idea: a pass is bound by the cache or by memory, so that each does all it can: the maximum drops
// NaN by its operand order, the softmax writes the weights, clears those below min-p and sums them.
// Runs of 256 are summed in f32 lanes, the runs in double, for the same total on any vocabulary.
//
// Cost of a row of 151,936 logits: 0.6 MB a pass; one pass for greedy, three and a search for top-p.
#include "backend/cpu/sample/sample_kernels.h"

#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLargest = 3.40282347e+38f;

// The last, partial vector of a row, filled up.
ZIPAGE_INLINE Vec load_rest(const float* x, int64_t count, float fill) {
  float lanes[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) lanes[i] = i < count ? x[i] : fill;
  return load(lanes);
}

float row_max(const float* x, int64_t count) {
  Vec a = splat(-kInfinity), b = a;
  int64_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    a = max(load(x + i), a);  // in this order NaN is dropped
    b = max(load(x + i + kWidth), b);
  }
  for (; i < count; i += kWidth) a = max(load_rest(x + i, count - i, -kInfinity), a);
  return max_lane(max(a, b));
}

int32_t row_argmax(const float* x, int64_t count) {
  const float top = row_max(x, count);
  if (top == -kInfinity) return -1;
  int64_t i = 0;
  while (x[i] != top) ++i;
  return static_cast<int32_t>(i);
}

void row_make_finite(float* x, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store(x + i, min(max(load(x + i), splat(-kInfinity)), splat(kLargest)));
  }
  for (; i < count; ++i) x[i] = x[i] != x[i] ? -kInfinity : x[i] > kLargest ? kLargest : x[i];
}

double row_softmax_weights(
    const float* x, int64_t count, float top, float scale, float least, float* weights) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSampleRun) {
    const int64_t end = begin + kSampleRun < count ? begin + kSampleRun : count;
    Vec run = zero();
    for (int64_t i = begin; i < end; i += kWidth) {
      const int64_t left = end - i;
      const Vec shifted = left >= kWidth ? load(x + i) - splat(top)
                                         : load_rest(x + i, left, -kInfinity) - splat(top);
      Vec weight = exp(shifted * splat(scale));
      weight = zero_below(weight, weight, least);
      run = run + weight;
      if (weights == nullptr) continue;
      if (left >= kWidth) {
        store(weights + i, weight);
      } else {
        float lanes[kWidth];
        store(lanes, weight);
        for (int64_t k = 0; k < left; ++k) weights[i + k] = lanes[k];
      }
    }
    total += sum(run);
  }
  return total;
}

double row_sum(const float* x, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSampleRun) {
    const int64_t end = begin + kSampleRun < count ? begin + kSampleRun : count;
    Vec run = zero();
    for (int64_t i = begin; i < end; i += kWidth) {
      run = run + (end - i >= kWidth ? load(x + i) : load_rest(x + i, end - i, 0.0f));
    }
    total += sum(run);
  }
  return total;
}

}  // namespace

namespace ZIPAGE_ISA {
extern const SampleKernels kSample = {row_argmax, row_make_finite, row_max, row_softmax_weights,
                                      row_sum};
}  // namespace ZIPAGE_ISA
}  // namespace zipage::cpu
