// DType: element types of tensors in memory and in files, their sizes, and conversions to and from
// bf16 and f16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zipage {

// Packed types (kQ*) are GGUF's: blocks of several elements, see weights/gguf.h.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kI8,
  kI32,
  kI64,
  kU8,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

// "f32", "bf16", "q4_0", ...
const char* to_string(DType dtype);
// True for kQ*
bool is_packed(DType dtype);
// Elements a packed block holds; 1 for plain types.
int64_t packed_block_elements(DType dtype);
// Bytes of a packed block; the element's size for plain types.
int64_t packed_block_bytes(DType dtype);
// Bytes of `count` elements; count is a multiple of packed_block_elements.
int64_t dtype_bytes(DType dtype, int64_t count);

inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits);
// Nearest even; overflow to infinity.
uint16_t f32_to_f16(float value);

}  // namespace zipage
