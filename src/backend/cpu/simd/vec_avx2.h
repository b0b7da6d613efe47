// Eight floats with AVX2, FMA and F16C. Included by vec.h alone.
#pragma once

#include "backend/cpu/simd/vec_x86.h"

namespace zipage::cpu {
namespace {

constexpr int kWidth = 8;
struct Vec {
  __m256 v;
};
// All bits of a lane are set, or none.
struct Mask {
  __m256 v;
};

ZIPAGE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
ZIPAGE_INLINE Vec splat(float x) { return {_mm256_set1_ps(x)}; }
ZIPAGE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
ZIPAGE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
ZIPAGE_INLINE Vec load(const F32* p) { return {load8(p)}; }
ZIPAGE_INLINE Vec load(const BF16* p) { return {load8(p)}; }
ZIPAGE_INLINE Vec load(const F16* p) { return {load8(p)}; }
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
ZIPAGE_INLINE Vec add_exponent(Vec p, Vec t) {
  const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(t.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.v), shift))};
}
ZIPAGE_INLINE Mask greater(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
ZIPAGE_INLINE Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.v, b.v)}; }
ZIPAGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm256_blendv_ps(b.v, a.v, m.v)}; }
ZIPAGE_INLINE Vec zero_where(Mask m, Vec a) { return {_mm256_andnot_ps(m.v, a.v)}; }

ZIPAGE_INLINE __m128 fold(Vec a) { return fold256(a.v); }
ZIPAGE_INLINE __m256 fold_pair(Vec a, Vec b) { return fold256_pair(a.v, b.v); }
ZIPAGE_INLINE float max_lane(Vec a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

ZIPAGE_INLINE Vec load_pairs(const BF16* p, int which) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(which == 0 ? _mm256_slli_epi32(pairs, 16)
                                         : _mm256_and_si256(pairs, high))};
}
template <int N>
ZIPAGE_INLINE void add_products(const float* x, const Vec (&w)[N], Vec* sums) {
  const Vec wide = splat(*x);
  ZIPAGE_UNROLL
  for (int i = 0; i < N; ++i) sums[i] = fma(wide, w[i], sums[i]);
}
ZIPAGE_INLINE void add_products(const float* x, const Vec (&w)[2], Vec* sums) {
  // One piece of assembly, since a tile uses all 16 registers: the compiler would load several
  // inputs early and spill sums.
  Vec wide;
  __asm__(
      "vbroadcastss %[x], %[wide]\n\t"
      "vfmadd231ps %[w0], %[wide], %[sum0]\n\t"
      "vfmadd231ps %[w1], %[wide], %[sum1]"
      : [sum0] "+x"(sums[0].v), [sum1] "+x"(sums[1].v), [wide] "=&x"(wide.v)
      : [x] "m"(*x), [w0] "x"(w[0].v), [w1] "x"(w[1].v));
}
template <typename T>
ZIPAGE_INLINE void transpose(
    const std::byte* from, int64_t from_bytes, Vec scale, float* to, int64_t to_stride) {
  transpose8<T>(from, from_bytes, scale.v, to, to_stride);
}

// Integers: 8 lanes of 32 bits, or 32 bytes of a line.
struct IVec {
  __m256i v;
};
ZIPAGE_INLINE IVec load_line(const std::byte* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
ZIPAGE_INLINE IVec load_u8(const std::byte* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
ZIPAGE_INLINE IVec load_i8(const std::byte* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
ZIPAGE_INLINE IVec load_u4_planes(const std::byte* p, int part) {
  const IVec bytes = load_u8(p);
  return part == 0 ? bytes : IVec{_mm256_srli_epi32(bytes.v, 4)};
}
ZIPAGE_INLINE IVec splat_lanes(int x) { return {_mm256_set1_epi32(x)}; }
ZIPAGE_INLINE IVec splat_bytes(char x) { return {_mm256_set1_epi8(x)}; }
ZIPAGE_INLINE IVec operator&(IVec a, IVec b) { return {_mm256_and_si256(a.v, b.v)}; }
ZIPAGE_INLINE IVec operator|(IVec a, IVec b) { return {_mm256_or_si256(a.v, b.v)}; }
ZIPAGE_INLINE IVec operator<<(IVec a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec operator>>(IVec a, int bits) { return {_mm256_srli_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_right_signed(IVec a, int bits) { return {_mm256_srai_epi32(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_left_16(IVec a, int bits) { return {_mm256_slli_epi16(a.v, bits)}; }
ZIPAGE_INLINE IVec shift_right_16(IVec a, int bits) { return {_mm256_srli_epi16(a.v, bits)}; }
ZIPAGE_INLINE Vec to_float(IVec a) { return {_mm256_cvtepi32_ps(a.v)}; }
ZIPAGE_INLINE Vec negate(Vec a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))}; }

}  // namespace
}  // namespace zipage::cpu
