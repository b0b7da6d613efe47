// Inner loops of the compression ops, one set an instruction set. Raw pointers only. `n` of the
// array loops is a multiple of kTile: the caller pads with -inf (or 0). The order of every sum
// depends on the shape alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace zipage::cpu {

inline constexpr int kTile = 16;  // keys that are compared with queries at one time

inline int64_t round_to_tile(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

struct CompressionKernels {
  // dst[i] = scale * src[i], i < count; src holds f32, f16 or bf16.
  void (*load)(const std::byte* src, DType dtype, int64_t count, float scale, float* dst);
  // dst[j, c] = scale * src[c, j] for c < count <= kTile, 0 for the other columns. src [count, d],
  // dst [d, kTile].
  void (*pack_tile)(const std::byte* src, DType dtype, int count, int d, float scale, float* dst);
  // out[r * ld + c] = sum_j q[r, j] tile[j, c], j ascending, for r < rows and c < kTile. q [rows,
  // d].
  void (*dot_tile)(const float* q, int rows, int d, const float* tile, float* out, int64_t ld);
  float (*dot)(const float* a, const float* b, int64_t count);
  // x = R(-pos) x, half-split: cos_sin holds the cosines of `half` angles, then their sines.
  void (*derotate)(float* x, const float* cos_sin, int half);
  // y += a * x
  void (*axpy)(float a, const float* x, float* y, int64_t count);
  float (*max)(const float* x, int64_t n);
  float (*sum_exp2)(const float* x, float shift, int64_t n);              // sum of 2^(x + shift)
  void (*max_shifted)(float* m, const float* x, float shift, int64_t n);  // m = max(m, x + shift)
  void (*exp2)(float* x, int64_t n);                                      // x = 2^x
  // Rows of similarities [rows, kTile], newest last: in every column that is not yet tagged the
  // last one above the threshold counts as 0 and tags the column (Alg. 3); -inf counts as 0.
  // sums[r] += sum over the columns. tags: kTile floats, 0 or not.
  void (*sweep)(const float* similarities, int rows, float threshold, float* tags, float* sums);
};

}  // namespace zipage::cpu
