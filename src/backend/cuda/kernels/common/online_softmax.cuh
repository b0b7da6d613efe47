// The online softmax (Milakov and Gimelshein, 2018; FlashAttention): a softmax-weighted sum over tiles of scores, with one
// pass over the scores. Scores are in powers of two: multiply a logit by kLog2e, and use exp2_approx.
//
//   SoftmaxState state;                                     // of a row
//   for (each tile of the row's scores s) {
//     const float keep = state.raise(tile's maximum);        // what was summed so far shrinks by this factor
//     for (each j) state.sum += p[j] = exp2_approx(s[j] - state.maximum);
//     o = o * keep + p V;
//   }
//   o /= state.sum;
//
// States of several parts of a row merge in any number of steps: see merge_states().
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels/common/ptx.cuh"

namespace zipage {

inline constexpr float kLog2e = 1.4426950408889634f;

struct SoftmaxState {
  float maximum = -INFINITY;
  float sum = 0;  // of 2^(score - maximum)

  // Takes `tile_maximum` (not -inf in all tiles so far) into account and returns the factor of what has been summed.
  __device__ float raise(float tile_maximum) {
    const float largest = fmaxf(maximum, tile_maximum);
    const float keep = exp2_approx(maximum - largest);
    maximum = largest;
    sum *= keep;
    return keep;
  }
};

// What scores are reduced by before the exponential: their maximum, or 0 if every score is -inf (-inf - -inf is NaN).
__device__ inline float softmax_shift(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

// The state of two parts together; a part without scores has the maximum -inf.
__device__ inline SoftmaxState merge_states(const SoftmaxState& a, const SoftmaxState& b) {
  const float largest = fmaxf(a.maximum, b.maximum);
  return {largest, (a.maximum != -INFINITY ? a.sum * exp2_approx(a.maximum - largest) : 0.0f) +
                       (b.maximum != -INFINITY ? b.sum * exp2_approx(b.maximum - largest) : 0.0f)};
}

}  // namespace zipage
