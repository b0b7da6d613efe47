// Elements in memory as the kernels see them, and their conversion one at a time. Internal to each
// file that includes it, as simd/vec.h.
//
//   const auto* row = reinterpret_cast<const BF16*>(bytes);
//   float x = widen(row[0]);
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd/unroll.h"

namespace zipage::cpu {
namespace {

// Element types in memory: of KV entries, of weights.
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

}  // namespace
}  // namespace zipage::cpu
