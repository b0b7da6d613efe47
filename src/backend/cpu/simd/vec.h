// Vectors of one ISA for the kernels of attention, norms, element-wise ops and sampling. Each
// kernel file is compiled once an ISA: it defines ZIPAGE_SIMD_AVX2 or ZIPAGE_SIMD_AVX512 (or
// nothing: portable code) before it includes this. Everything here has internal linkage and nothing
// comes from a header with inline functions, so that no code built with wider instructions can be
// picked by the linker for a machine that lacks them.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(ZIPAGE_SIMD_AVX2) || defined(ZIPAGE_SIMD_AVX512)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// GCC 12 on its own headers (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

namespace zipage::cpu {
namespace {

#define ZIPAGE_INLINE inline __attribute__((always_inline))

// Element types of KV entries in memory.
struct F32 {
  float value;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

ZIPAGE_INLINE float from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
ZIPAGE_INLINE uint32_t to_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

// One element; the rounding is that of tensor/dtype.h.
ZIPAGE_INLINE float widen(F32 x) { return x.value; }
ZIPAGE_INLINE float widen(BF16 x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }
ZIPAGE_INLINE float widen(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The f16 exponent read as an f32 exponent is 112 too small; the product is exact, subnormals
  // included.
  return from_bits(sign | to_bits(from_bits(magnitude << 13) * 0x1p112f));
}
ZIPAGE_INLINE void narrow(float x, F32& out) { out.value = x; }
ZIPAGE_INLINE void narrow(float x, BF16& out) {
  const uint32_t bits = to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    out.bits = static_cast<uint16_t>((bits >> 16) | 0x40u);
  } else {
    out.bits = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}
ZIPAGE_INLINE void narrow(float x, F16& out) {
  const uint32_t bits = to_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 makes the adder round at 2^-24
    half = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  out.bits = static_cast<uint16_t>(sign | half);
}

// Vec: kWidth floats. sum() adds lanes as a tree of halves: lane i with lane i + width/2, and so
// on; sum4() does the same for four vectors at once, so that both give the same bits.
#if defined(ZIPAGE_SIMD_AVX512)

constexpr int kWidth = 16;
struct Vec {
  __m512 v;
};
ZIPAGE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
ZIPAGE_INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
ZIPAGE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
ZIPAGE_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
ZIPAGE_INLINE Vec load(const F32* p) { return {_mm512_loadu_ps(p)}; }
ZIPAGE_INLINE Vec load(const BF16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
ZIPAGE_INLINE Vec load(const F16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
ZIPAGE_INLINE void store(F32* p, Vec a) { _mm512_storeu_ps(p, a.v); }
ZIPAGE_INLINE void store(BF16* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i high = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(high));
}
ZIPAGE_INLINE void store(F16* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ZIPAGE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
ZIPAGE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n, n an integer in [-126, 127].
ZIPAGE_INLINE Vec scale_by_power(Vec x, Vec n) {
  const __m512i exponent =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(exponent))};
}
// a where x >= bound, else 0. NaN x keeps a.
ZIPAGE_INLINE Vec zero_below(Vec a, Vec x, float bound) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), a.v)};
}
// Lanes from count on become `fill`; 0 <= count <= kWidth.
ZIPAGE_INLINE Vec keep_first(Vec a, int count, float fill) {
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1u);
  return {_mm512_mask_blend_ps(mask, _mm512_set1_ps(fill), a.v)};
}
ZIPAGE_INLINE __m256 fold512(__m512 a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
ZIPAGE_INLINE __m128 fold256(__m256 a) {
  return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}
ZIPAGE_INLINE __m128 fold(Vec a) { return fold256(fold512(a.v)); }
ZIPAGE_INLINE __m256 fold_pair(Vec a, Vec b) {  // fold(a) | fold(b)
  const __m256 x = fold512(a.v), y = fold512(b.v);
  return _mm256_add_ps(_mm256_insertf128_ps(x, _mm256_castps256_ps128(y), 1),
                       _mm256_permute2f128_ps(x, y, 0x31));
}
ZIPAGE_INLINE float max_lane(Vec a) { return _mm512_reduce_max_ps(a.v); }

#elif defined(ZIPAGE_SIMD_AVX2)

constexpr int kWidth = 8;
struct Vec {
  __m256 v;
};
ZIPAGE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
ZIPAGE_INLINE Vec splat(float x) { return {_mm256_set1_ps(x)}; }
ZIPAGE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
ZIPAGE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
ZIPAGE_INLINE Vec load(const F32* p) {
  return {_mm256_loadu_ps(reinterpret_cast<const float*>(p))};
}
ZIPAGE_INLINE Vec load(const BF16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
ZIPAGE_INLINE Vec load(const F16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
ZIPAGE_INLINE void store(F32* p, Vec a) { _mm256_storeu_ps(reinterpret_cast<float*>(p), a.v); }
ZIPAGE_INLINE void store(BF16* p, Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
ZIPAGE_INLINE void store(F16* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ZIPAGE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
ZIPAGE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
ZIPAGE_INLINE Vec scale_by_power(Vec x, Vec n) {
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_mul_ps(x.v, _mm256_castsi256_ps(exponent))};
}
ZIPAGE_INLINE Vec zero_below(Vec a, Vec x, float bound) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.v, _mm256_set1_ps(bound), _CMP_NLT_UQ), a.v)};
}
ZIPAGE_INLINE Vec keep_first(Vec a, int count, float fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
  return {_mm256_blendv_ps(_mm256_set1_ps(fill), a.v, _mm256_castsi256_ps(mask))};
}
ZIPAGE_INLINE __m128 fold(Vec a) {
  return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
}
ZIPAGE_INLINE __m256 fold_pair(__m256 a, __m256 b) {  // fold(a) | fold(b)
  return _mm256_add_ps(_mm256_insertf128_ps(a, _mm256_castps256_ps128(b), 1),
                       _mm256_permute2f128_ps(a, b, 0x31));
}
ZIPAGE_INLINE __m256 fold_pair(Vec a, Vec b) { return fold_pair(a.v, b.v); }
ZIPAGE_INLINE float max_lane(Vec a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

#else

constexpr int kWidth = 4;
struct Vec {
  float v[kWidth];
};
#define ZIPAGE_LANES(expression)                          \
  Vec r;                                                  \
  for (int i = 0; i < kWidth; ++i) r.v[i] = (expression); \
  return r
ZIPAGE_INLINE Vec splat(float x) { ZIPAGE_LANES(x); }
ZIPAGE_INLINE Vec zero() { return splat(0.0f); }
ZIPAGE_INLINE Vec load(const float* p) { ZIPAGE_LANES(p[i]); }
template <typename T>
ZIPAGE_INLINE Vec load(const T* p) {
  ZIPAGE_LANES(widen(p[i]));
}
ZIPAGE_INLINE void store(float* p, Vec a) {
  for (int i = 0; i < kWidth; ++i) p[i] = a.v[i];
}
template <typename T>
ZIPAGE_INLINE void store(T* p, Vec a) {
  for (int i = 0; i < kWidth; ++i) narrow(a.v[i], p[i]);
}
ZIPAGE_INLINE Vec operator+(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] + b.v[i]); }
ZIPAGE_INLINE Vec operator-(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] - b.v[i]); }
ZIPAGE_INLINE Vec operator*(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] * b.v[i]); }
ZIPAGE_INLINE Vec operator/(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] / b.v[i]); }
// Two roundings here: a fused multiply-add is a library call on such a machine.
ZIPAGE_INLINE Vec fma(Vec a, Vec b, Vec c) { ZIPAGE_LANES(a.v[i] * b.v[i] + c.v[i]); }
ZIPAGE_INLINE Vec max(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
ZIPAGE_INLINE Vec min(Vec a, Vec b) { ZIPAGE_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
// Nearest even for |a| < 2^22: the adder rounds.
ZIPAGE_INLINE Vec round(Vec a) { ZIPAGE_LANES((a.v[i] + 0x1.8p23f) - 0x1.8p23f); }
ZIPAGE_INLINE Vec scale_by_power(Vec x, Vec n) {
  ZIPAGE_LANES(n.v[i] == n.v[i]
                   ? x.v[i] *
                         from_bits(static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23)
                   : n.v[i]);
}
ZIPAGE_INLINE Vec zero_below(Vec a, Vec x, float bound) {
  ZIPAGE_LANES(x.v[i] < bound ? 0.0f : a.v[i]);
}
ZIPAGE_INLINE Vec keep_first(Vec a, int count, float fill) {
  ZIPAGE_LANES(i < count ? a.v[i] : fill);
}
ZIPAGE_INLINE float max_lane(Vec a) {
  float m = a.v[0];
  for (int i = 1; i < kWidth; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
ZIPAGE_INLINE float sum(Vec a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
ZIPAGE_INLINE void store_sum4(float* p, const Vec (&a)[4]) {
  for (int i = 0; i < 4; ++i) p[i] = sum(a[i]);
}
ZIPAGE_INLINE void store_sum4(float* p, float* q, const Vec (&a)[4], const Vec (&b)[4]) {
  store_sum4(p, a);
  store_sum4(q, b);
}
#undef ZIPAGE_LANES

#endif

#if defined(ZIPAGE_SIMD_AVX2) || defined(ZIPAGE_SIMD_AVX512)
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
// maximum norm on
// [-1/2, 1/2]; exactly 1 at 0, and 0 below -126 (where f32 has no normal numbers).
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
