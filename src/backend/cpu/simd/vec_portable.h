// Four floats as the compiler makes them of any CPU's instructions. Included by vec.h alone.
#pragma once

#include "backend/cpu/simd/elements.h"

namespace zipage::cpu {
namespace {

constexpr int kWidth = 4;
typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
struct Vec {
  Float4 v;
};
// All bits of a lane are set, or none.
struct Mask {
  Int4 v;
};

ZIPAGE_INLINE Vec splat(float x) { return {Float4{x, x, x, x}}; }
ZIPAGE_INLINE Vec zero() { return splat(0.0f); }
ZIPAGE_INLINE Vec load(const float* p) {
  Vec a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
template <typename T>
ZIPAGE_INLINE Vec load(const T* p) {
  return {Float4{widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])}};
}
ZIPAGE_INLINE void store(float* p, Vec a) { __builtin_memcpy(p, &a, sizeof a); }
template <typename T>
ZIPAGE_INLINE void store(T* p, Vec a) {
  for (int i = 0; i < kWidth; ++i) narrow(a.v[i], p[i]);
}
ZIPAGE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
ZIPAGE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
ZIPAGE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
ZIPAGE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
// Two roundings: a fused multiply-add is a library call on such a machine.
ZIPAGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
ZIPAGE_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
ZIPAGE_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
// For |a| < 2^22: the adder rounds.
ZIPAGE_INLINE Vec round(Vec a) {
  const Vec magic = splat(0x1.8p23f);
  return (a + magic) - magic;
}

ZIPAGE_INLINE Mask greater(Vec a, Vec b) { return {a.v > b.v}; }
ZIPAGE_INLINE Mask operator&(Mask a, Mask b) { return {a.v & b.v}; }
ZIPAGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {m.v ? a.v : b.v}; }
ZIPAGE_INLINE Vec zero_where(Mask m, Vec a) { return {m.v ? zero().v : a.v}; }
ZIPAGE_INLINE Vec zero_below(Vec a, Vec x, float bound) {
  return {x.v < splat(bound).v ? zero().v : a.v};
}
ZIPAGE_INLINE Vec keep_first(Vec a, int count, float fill) {
  const Int4 lane = {0, 1, 2, 3};
  return {lane < Int4{count, count, count, count} ? a.v : splat(fill).v};
}

ZIPAGE_INLINE Vec scale_by_power(Vec x, Vec n) {
  Vec r;
  for (int i = 0; i < kWidth; ++i) {
    const float power = n.v[i];
    const auto exponent = static_cast<uint32_t>(static_cast<int32_t>(power) + 127) << 23;
    r.v[i] = power == power ? x.v[i] * from_bits(exponent) : power;
  }
  return r;
}
ZIPAGE_INLINE Vec add_exponent(Vec p, Vec t) {
  Int4 bits, shift;
  __builtin_memcpy(&bits, &p, sizeof bits);
  __builtin_memcpy(&shift, &t, sizeof shift);
  bits += shift << 23;
  __builtin_memcpy(&p, &bits, sizeof bits);
  return p;
}

ZIPAGE_INLINE float max_lane(Vec a) {
  const float even = a.v[0] > a.v[1] ? a.v[0] : a.v[1];
  const float odd = a.v[2] > a.v[3] ? a.v[2] : a.v[3];
  return even > odd ? even : odd;
}
ZIPAGE_INLINE float sum(Vec a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
ZIPAGE_INLINE void store_sum4(float* p, const Vec (&a)[4]) {
  for (int i = 0; i < 4; ++i) p[i] = sum(a[i]);
}
ZIPAGE_INLINE void store_sum4(float* p, float* q, const Vec (&a)[4], const Vec (&b)[4]) {
  store_sum4(p, a);
  store_sum4(q, b);
}

// Of a little-endian machine, as files with bf16 are.
ZIPAGE_INLINE Vec load_pairs(const BF16* p, int which) {
  Int4 pairs;
  __builtin_memcpy(&pairs, p, sizeof pairs);
  const Int4 high = Int4{} + static_cast<int32_t>(0xffff0000u);
  pairs = which == 0 ? pairs << 16 : pairs & high;
  Vec a;
  __builtin_memcpy(&a, &pairs, sizeof a);
  return a;
}
template <int N>
ZIPAGE_INLINE void add_products(const float* x, const Vec (&w)[N], Vec* sums) {
  const Vec wide = splat(*x);
  ZIPAGE_UNROLL
  for (int i = 0; i < N; ++i) sums[i] = fma(wide, w[i], sums[i]);
}

constexpr int kSquare = 4;
template <typename T>
ZIPAGE_INLINE void transpose(
    const std::byte* from, int64_t from_bytes, Vec scale, float* to, int64_t to_stride) {
  Vec row[kSquare];
  for (int c = 0; c < kSquare; ++c) {
    row[c] = load(reinterpret_cast<const T*>(from + c * from_bytes)) * scale;
  }
  for (int j = 0; j < kSquare; ++j) {
    store(to + j * to_stride, {Float4{row[0].v[j], row[1].v[j], row[2].v[j], row[3].v[j]}});
  }
}

}  // namespace
}  // namespace zipage::cpu
