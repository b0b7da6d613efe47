#include "tensor/dtype.h"

#include "base/check.h"

namespace zipage {
namespace {

struct Traits {
  const char* name;
  int64_t elements;
  int64_t bytes;
};

Traits traits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {"f32", 1, 4};
    case DType::kF16:
      return {"f16", 1, 2};
    case DType::kBF16:
      return {"bf16", 1, 2};
    case DType::kF8E4M3:
      return {"f8_e4m3", 1, 1};
    case DType::kI8:
      return {"i8", 1, 1};
    case DType::kI32:
      return {"i32", 1, 4};
    case DType::kI64:
      return {"i64", 1, 8};
    case DType::kU8:
      return {"u8", 1, 1};
    case DType::kQ8_0:
      return {"q8_0", 32, 34};
    case DType::kQ4_0:
      return {"q4_0", 32, 18};
    case DType::kQ4_1:
      return {"q4_1", 32, 20};
    case DType::kQ5_0:
      return {"q5_0", 32, 22};
    case DType::kQ5_1:
      return {"q5_1", 32, 24};
    case DType::kQ4_K:
      return {"q4_k", 256, 144};
    case DType::kQ5_K:
      return {"q5_k", 256, 176};
    case DType::kQ6_K:
      return {"q6_k", 256, 210};
  }
  check_failed(__FILE__, __LINE__, "unknown dtype");
}

}  // namespace

const char* to_string(DType dtype) { return traits(dtype).name; }
bool is_packed(DType dtype) { return traits(dtype).elements > 1; }
int64_t packed_block_elements(DType dtype) { return traits(dtype).elements; }
int64_t packed_block_bytes(DType dtype) { return traits(dtype).bytes; }

int64_t dtype_bytes(DType dtype, int64_t count) {
  const Traits t = traits(dtype);
  ZIPAGE_CHECK_EQ(count % t.elements, 0);
  return count / t.elements * t.bytes;
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  uint32_t wide;
  if (exponent == 0x1fu) {
    wide = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    wide = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  } else {
    // Subnormal: mantissa * 2^-24, exact in f32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    __builtin_memcpy(&wide, &magnitude, sizeof wide);
    wide |= sign;
  }
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t f32_to_f16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal
    float absolute;
    __builtin_memcpy(&absolute, &magnitude, sizeof absolute);
    // Adding 0.5 aligns the unit of 2^-24 with the last bit of the sum; the adder rounds.
    const float aligned = absolute + 0.5f;
    uint32_t aligned_bits;
    __builtin_memcpy(&aligned_bits, &aligned, sizeof aligned_bits);
    return sign | static_cast<uint16_t>(aligned_bits - 0x3f000000u);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

}  // namespace zipage
