// Vectors of floats: the one vocabulary that the CPU's kernels are written in.
//
// A kernel file is written once over Vec and compiled once per instruction set (CMakeLists.txt of
// src/backend/cpu defines ZIPAGE_VEC_WIDTH, the floats of a Vec: 16 with AVX-512, 8 with AVX2, 4 for
// any CPU). A kernel that needs what one instruction set alone can do (VNNI, AMX tiles) has a file
// named after it.
//
//   for (; i + kWidth <= n; i += kWidth) store(y + i, fma(splat(a), load(x + i), load(y + i)));
//
// Linkage: everything here is internal to the file that includes it, and nothing comes from a header
// with inline functions. Otherwise the linker could keep the copy that was compiled with wider
// instructions and run it on a machine that lacks them.
// Rounding: an operation rounds as its name says on every instruction set, but fma() rounds once
// with AVX2 and AVX-512 and twice in the portable version.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd/elements.h"

#if !defined(ZIPAGE_VEC_WIDTH)
#define ZIPAGE_VEC_WIDTH 4
#endif

// The operations; each of the three headers defines them all.
//
//   Vec, kWidth            kWidth floats
//   zero, splat, load, store (of float, F32, F16, BF16), + - * /, fma(a, b, c) = a * b + c
//   max, min               the second operand where either is NaN
//   round                  to the nearest even integer
//   greater(a, b) -> Mask, m & n, select(m, a, b), zero_where(m, a)
//   zero_below(a, x, b)    a where x >= b or x is NaN, else 0
//   keep_first(a, n, f)    lanes from n on become f; 0 <= n <= kWidth
//   scale_by_power(x, n)   x * 2^n, n an integer in [-126, 127]
//   add_exponent(p, t)     adds the low bits of t, as an integer, to the exponent of p
//   sum(a)                 lanes as a tree of halves: lane i with lane i + kWidth / 2, and so on
//   store_sum4(p, a)       p[0..4) = the sums of four vectors, the same bits as sum()
//   store_sum4(p, q, a, b) the same for two sets of four
//   max_lane(a)            NaN must not occur
//   load_pairs(p, i)       element i (0 or 1) of kWidth pairs of bf16
//   add_products(x, w, s)  s[i] += *x * w[i] for N vectors
//   transpose<T>(from, from_bytes, scale, to, to_stride)
//                          to[j * to_stride + c] = scale * from[c, j] for a square of kSquare
//
// With AVX2 and AVX-512 also integers, for packed weights:
//   IVec                   kWidth lanes of 32 bits, or 4 kWidth bytes
//   load_line, load_u8, load_i8 (bytes to lanes), splat_lanes, splat_bytes, & |, to_float
//   << >>, shift_right_signed              of lanes of 32 bits; zeros come in, or the sign
//   shift_left_16, shift_right_16          of lanes of 16 bits
//   load_u4_planes(p, v)   vector v of 16 lanes: eight bytes, then their upper halves
//   negate(a)              the sign flipped
#if ZIPAGE_VEC_WIDTH == 16
#include "backend/cpu/simd/vec_avx512.h"
#elif ZIPAGE_VEC_WIDTH == 8
#include "backend/cpu/simd/vec_avx2.h"
#else
#include "backend/cpu/simd/vec_portable.h"
#endif

namespace zipage::cpu {
namespace {

#if ZIPAGE_VEC_WIDTH > 4
ZIPAGE_INLINE float sum(Vec a) {
  __m128 s = fold(a);
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
// p[0..4) = the four sums.
ZIPAGE_INLINE void store_sum4(float* p, const Vec (&a)[4]) {
  const __m128 a0 = fold(a[0]), a1 = fold(a[1]), a2 = fold(a[2]), a3 = fold(a[3]);
  const __m128 low = _mm_add_ps(_mm_unpacklo_ps(a0, a1),
                                _mm_unpackhi_ps(a0, a1));  // 0: 0+2, 1: 0+2, 0: 1+3, 1: 1+3
  const __m128 high = _mm_add_ps(_mm_unpacklo_ps(a2, a3), _mm_unpackhi_ps(a2, a3));
  _mm_storeu_ps(p, _mm_add_ps(_mm_movelh_ps(low, high), _mm_movehl_ps(high, low)));
}
// The same for two sets at once: p[0..4) of a, q[0..4) of b.
ZIPAGE_INLINE void store_sum4(float* p, float* q, const Vec (&a)[4], const Vec (&b)[4]) {
  const __m256 f0 = fold_pair(a[0], b[0]), f1 = fold_pair(a[1], b[1]);
  const __m256 f2 = fold_pair(a[2], b[2]), f3 = fold_pair(a[3], b[3]);
  const __m256 low = _mm256_add_ps(_mm256_unpacklo_ps(f0, f1), _mm256_unpackhi_ps(f0, f1));
  const __m256 high = _mm256_add_ps(_mm256_unpacklo_ps(f2, f3), _mm256_unpackhi_ps(f2, f3));
  const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(1, 0, 1, 0)),
                                    _mm256_shuffle_ps(low, high, _MM_SHUFFLE(3, 2, 3, 2)));
  _mm_storeu_ps(p, _mm256_castps256_ps128(sums));
  _mm_storeu_ps(q, _mm256_extractf128_ps(sums, 1));
}
#endif

// 2^x for x <= 127, relative error below 2e-7: 2^round(x) times a polynomial that is least in the
// maximum norm on [-1/2, 1/2]; exactly 1 at 0, and 0 below -126 (where f32 has no normal numbers).
ZIPAGE_INLINE Vec exp2(Vec x) {
  const Vec clamped = max(splat(-126.0f), x);  // in this order NaN passes
  const Vec n = round(clamped);
  const Vec f = clamped - n;
  Vec p = splat(1.5353367e-4f);
  p = fma(p, f, splat(1.339888e-3f));
  p = fma(p, f, splat(9.6184374e-3f));
  p = fma(p, f, splat(5.5503325e-2f));
  p = fma(p, f, splat(2.4022648e-1f));
  p = fma(p, f, splat(6.9314720e-1f));
  p = fma(p, f, splat(1.0f));
  return zero_below(scale_by_power(p, n), x, -126.0f);
}

// e^x for x <= 88: the same with x = n ln 2 + r, ln 2 in two parts so that r keeps its last bits. 0
// below -87.3.
ZIPAGE_INLINE Vec exp(Vec x) {
  const Vec clamped = max(splat(-87.3f), x);
  const Vec n = round(clamped * splat(1.44269504f));
  Vec r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.3814580e-3f);
  p = fma(p, r, splat(8.3687191e-3f));
  p = fma(p, r, splat(4.1668388e-2f));
  p = fma(p, r, splat(1.6666521e-1f));
  p = fma(p, r, splat(4.9999993e-1f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return zero_below(scale_by_power(p, n), x, -87.3f);
}

}  // namespace
}  // namespace zipage::cpu
