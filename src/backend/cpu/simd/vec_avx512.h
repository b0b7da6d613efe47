// Sixteen floats with AVX-512 F, BW, VL and DQ. Included by vec.h alone.
#pragma once

#include "backend/cpu/simd/vec_x86.h"

namespace zipage::cpu {
namespace {

constexpr int kWidth = 16;
struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 v;
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
ZIPAGE_INLINE Vec scale_by_power(Vec x, Vec n) {
  const __m512i exponent =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(exponent))};
}
ZIPAGE_INLINE Vec zero_below(Vec a, Vec x, float bound) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), a.v)};
}
ZIPAGE_INLINE Vec keep_first(Vec a, int count, float fill) {
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1u);
  return {_mm512_mask_blend_ps(mask, _mm512_set1_ps(fill), a.v)};
}
ZIPAGE_INLINE Vec add_exponent(Vec p, Vec t) {
  const __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), shift))};
}
ZIPAGE_INLINE Mask greater(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
ZIPAGE_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
ZIPAGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_mov_ps(b.v, m.v, a.v)}; }
ZIPAGE_INLINE Vec zero_where(Mask m, Vec a) {
  return {_mm512_maskz_mov_ps(static_cast<__mmask16>(~m.v), a.v)};
}

ZIPAGE_INLINE __m256 fold512(__m512 a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
ZIPAGE_INLINE __m128 fold(Vec a) { return fold256(fold512(a.v)); }
ZIPAGE_INLINE __m256 fold_pair(Vec a, Vec b) { return fold256_pair(fold512(a.v), fold512(b.v)); }
ZIPAGE_INLINE float max_lane(Vec a) { return _mm512_reduce_max_ps(a.v); }

ZIPAGE_INLINE Vec load_pairs(const BF16* p, int which) {
  const __m512i pairs = _mm512_loadu_si512(p);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(which == 0 ? _mm512_slli_epi32(pairs, 16)
                                         : _mm512_and_si512(pairs, high))};
}
template <int N>
ZIPAGE_INLINE void add_products(const float* x, const Vec (&w)[N], Vec* sums) {
  const Vec wide = splat(*x);
  ZIPAGE_UNROLL
  for (int i = 0; i < N; ++i) sums[i] = fma(wide, w[i], sums[i]);
}
template <typename T>
ZIPAGE_INLINE void transpose(
    const std::byte* from, int64_t from_bytes, Vec scale, float* to, int64_t to_stride) {
  transpose8<T>(from, from_bytes, _mm512_castps512_ps256(scale.v), to, to_stride);
}

// Integers: 16 lanes of 32 bits, or the 64 bytes of a line.
struct IVec {
  __m512i v;
};
ZIPAGE_INLINE IVec load_line(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
ZIPAGE_INLINE IVec load_u8(const std::byte* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
ZIPAGE_INLINE IVec load_i8(const std::byte* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
ZIPAGE_INLINE IVec load_u4_planes(const std::byte* p, int) {
  int64_t bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return {_mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi64x(bytes)),
                            _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4))};
}
ZIPAGE_INLINE IVec splat_lanes(int x) { return {_mm512_set1_epi32(x)}; }
ZIPAGE_INLINE IVec splat_bytes(char x) { return {_mm512_set1_epi8(x)}; }
ZIPAGE_INLINE IVec operator&(IVec a, IVec b) { return {_mm512_and_si512(a.v, b.v)}; }
ZIPAGE_INLINE IVec operator|(IVec a, IVec b) { return {_mm512_or_si512(a.v, b.v)}; }
ZIPAGE_INLINE IVec operator<<(IVec a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec operator>>(IVec a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_right_signed(IVec a, int bits) { return {_mm512_srai_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_left_16(IVec a, int bits) { return {_mm512_slli_epi16(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_right_16(IVec a, int bits) { return {_mm512_srli_epi16(a.v, bits)}; }
ZIPAGE_INLINE Vec to_float(IVec a) { return {_mm512_cvtepi32_ps(a.v)}; }
ZIPAGE_INLINE Vec negate(Vec a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }

}  // namespace
}  // namespace zipage::cpu
