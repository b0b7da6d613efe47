// Scales and integers of packed weights (panel_format.h) in vectors: vector v of a panel holds
// outputs [kWidth v, kWidth v + kWidth). Internal to each file that includes it; AVX2 and AVX-512.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/panel_format.h"
#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

constexpr int kPanelVectors = kPanelOutputs / kWidth;
constexpr int64_t kLineBytes = 64;
constexpr int kVectorBytes = 4 * kWidth;  // of a line

// weight = d q + c. q has no sign, except in kQ8, which has no c.
struct QuantScales {
  Vec d, c;
};

// Parts of a block that have a scale of their own.
constexpr int num_parts(PanelFormat format) { return format == PanelFormat::kQ6K ? 2 : 1; }

// Products of 8-bit inputs with these formats are of integers with a sign (in kQ6K of q - 32), so
// that the rest of a weight is d alone.
constexpr bool has_signed_dots(PanelFormat format) {
  return format == PanelFormat::kQ8 || format == PanelFormat::kQ6K;
}

ZIPAGE_INLINE const F16* f16_at(const std::byte* p) { return reinterpret_cast<const F16*>(p); }

// Of block `block` of a group; `part`: of kQ6K, the half of the block's inputs.
template <PanelFormat kFormat>
ZIPAGE_INLINE QuantScales quant_scales(const std::byte* group, int64_t block, int part, int v) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kHead = kLayout.minima ? 64 : 32;
  const std::byte* at = group + kHead + block * kLayout.block_scale_bytes();
  const Vec d = load(f16_at(group) + kWidth * v);
  if constexpr (kFormat == PanelFormat::kQ8) {
    return {d, zero()};
  } else if constexpr (kFormat == PanelFormat::kQ6K) {
    const Vec scale = d * to_float(load_i8(at + 16 * part + kWidth * v));
    return {scale, scale * splat(-32.0f)};
  } else if constexpr (kLayout.num_blocks == 8) {
    const IVec low = load_u8(at + kWidth * v), high = load_u4_planes(at + 16, v);
    const IVec scale = (low & splat_lanes(0xf)) | (high & splat_lanes(3)) << 4;
    const IVec minimum = low >> 4 | (high & splat_lanes(0xc)) << 2;
    const Vec m = load(f16_at(group + 32) + kWidth * v);
    return {d * to_float(scale), negate(m) * to_float(minimum)};
  } else if constexpr (kLayout.minima) {
    return {d, load(f16_at(group + 32) + kWidth * v)};
  } else {
    return {d, d * splat(kLayout.bits == 4 ? -8.0f : -16.0f)};
  }
}

// Bits [from, ...) of every byte moved to bit 4 and up, those of `mask` kept.
ZIPAGE_INLINE IVec to_bit_4(IVec line, int from, char mask) {
  const IVec moved = from > 4   ? shift_right_16(line, from - 4)
                     : from < 4 ? shift_left_16(line, 4 - from)
                                : line;
  return moved & splat_bytes(mask);
}

// Integers of inputs [4 j, 4 j + 4) of a block, a byte each. j is a constant once loops are unrolled.
template <PanelFormat kFormat>
ZIPAGE_INLINE IVec quant_line(const std::byte* integers, int j, int v) {
  constexpr int kBits = quant_layout(kFormat).bits;
  const std::byte* at = integers + kVectorBytes * v;
  if constexpr (kBits == 8) return load_line(at + kLineBytes * j);
  const IVec line = load_line(at + kLineBytes * (j % 4));
  IVec q = (j < 4 ? line : shift_right_16(line, 4)) & splat_bytes(0xf);
  if constexpr (kBits == 5) q = q | to_bit_4(load_line(at + 256), j, 0x10);
  if constexpr (kBits == 6) {
    q = q | to_bit_4(load_line(at + 256 + kLineBytes * (j / 4)), 2 * (j % 4), 0x30);
  }
  return q;
}

}  // namespace
}  // namespace zipage::cpu
