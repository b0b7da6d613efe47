#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace zipage {
namespace {

using Bytes = const std::byte*;

float load_f16(Bytes at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}
uint32_t load_u32(Bytes at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
int load_u8(Bytes at) { return std::to_integer<int>(*at); }
int load_i8(Bytes at) { return static_cast<int8_t>(std::to_integer<uint8_t>(*at)); }
// 4-bit value i of `count` in a run of count / 2 bytes: low halves come first, then high halves.
int nibble(Bytes run, int i, int count) {
  const int half = count / 2;
  return i < half ? load_u8(run + i) & 0xf : load_u8(run + i - half) >> 4;
}

// 32 elements: f16 scale d, then 32 i8. x = d q
void q8_0(Bytes block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(load_i8(block + 2 + i));
}

// 32 elements: f16 scale d, then 4-bit q. x = d (q - 8)
void q4_0(Bytes block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i, 32) - 8);
}

// 32 elements: f16 scale d, f16 minimum m, then 4-bit q. x = d q + m
void q4_1(Bytes block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i, 32)) + m;
}

// The fifth bits of 32 elements are a word of their own, element i at bit i.
int five_bits(Bytes high, Bytes low, int i) {
  return nibble(low, i, 32) | static_cast<int>((load_u32(high) >> i) & 1u) << 4;
}

// 32 elements: f16 scale d, fifth bits, 4-bit q. x = d (q - 16)
void q5_0(Bytes block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(five_bits(block + 2, block + 6, i) - 16);
}

// 32 elements: f16 scale d, f16 minimum m, fifth bits, 4-bit q. x = d q + m
void q5_1(Bytes block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(five_bits(block + 4, block + 8, i)) + m;
  }
}

// 6-bit scale and minimum of sub-block j < 8, out of 12 bytes: bytes 0-3 and 4-7 hold those of
// sub-blocks 0-3 in their low six bits; byte 8 + j - 4 the low halves for sub-blocks 4-7, whose
// upper two bits are the upper bits of bytes 0-3 and 4-7.
struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(Bytes packed, int j) {
  if (j < 4) {
    return {static_cast<float>(load_u8(packed + j) & 0x3f),
            static_cast<float>(load_u8(packed + 4 + j) & 0x3f)};
  }
  const int low = load_u8(packed + 4 + j);
  return {static_cast<float>((low & 0xf) | load_u8(packed + j - 4) >> 6 << 4),
          static_cast<float>((low >> 4) | load_u8(packed + j) >> 6 << 4)};
}

// 256 elements in 8 sub-blocks of 32: f16 d, f16 dmin, 12 bytes of scales s and minima m, 4-bit q
// in runs of 32 bytes for two sub-blocks. x = (d s) q - (dmin m)
void q4_k(Bytes block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin s = scale_min(block + 4, j);
    const float scale = d * s.scale;
    const float min = dmin * s.min;
    Bytes run = block + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = nibble(run, j % 2 * 32 + i, 64);
      out[32 * j + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// As q4_k, with 32 bytes of fifth bits before the 4-bit runs: bit j of byte i for element i of
// sub-block j.
void q5_k(Bytes block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin s = scale_min(block + 4, j);
    const float scale = d * s.scale;
    const float min = dmin * s.min;
    Bytes run = block + 48 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int high = load_u8(block + 16 + i) >> j & 1;
      const int q = nibble(run, j % 2 * 32 + i, 64) | high << 4;
      out[32 * j + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// 256 elements in 16 sub-blocks of 16: 128 bytes of low halves, 64 of upper two bits, 16 i8 scales,
// f16 d. Halves of 128 elements: their low halves are a run of 64 bytes, element 32 k + i has its
// upper bits in byte i at 2 k. x = (d s) (q - 32)
void q6_k(Bytes block, float* out) {
  const float d = load_f16(block + 208);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int in_half = element % 128;
    const int low = nibble(block + 64 * half, in_half, 128);
    const int high = load_u8(block + 128 + 32 * half + in_half % 32) >> (in_half / 32 * 2) & 3;
    const float scale = d * static_cast<float>(load_i8(block + 192 + element / 16));
    out[element] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

using BlockFunction = void (*)(Bytes block, float* out);

BlockFunction block_function(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return q8_0;
    case DType::kQ4_0:
      return q4_0;
    case DType::kQ4_1:
      return q4_1;
    case DType::kQ5_0:
      return q5_0;
    case DType::kQ5_1:
      return q5_1;
    case DType::kQ4_K:
      return q4_k;
    case DType::kQ5_K:
      return q5_k;
    case DType::kQ6_K:
      return q6_k;
    case DType::kF32:
      return [](Bytes at, float* out) { std::memcpy(out, at, sizeof *out); };
    case DType::kF16:
      return [](Bytes at, float* out) { *out = load_f16(at); };
    case DType::kBF16:
      return [](Bytes at, float* out) {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        *out = bf16_to_f32(bits);
      };
    default:
      return nullptr;
  }
}

}  // namespace

void dequantize(const HostTensor& tensor, std::span<float> out) {
  ZIPAGE_CHECK_EQ(static_cast<int64_t>(out.size()), num_elements(tensor.shape));
  const BlockFunction function = block_function(tensor.dtype);
  if (function == nullptr) {
    fail(StatusCode::kUnimplemented, "tensor '{}': type {} has no meaning as float", tensor.name,
         to_string(tensor.dtype));
  }
  const int64_t elements = packed_block_elements(tensor.dtype);
  const int64_t bytes = packed_block_bytes(tensor.dtype);
  const int64_t num_blocks = static_cast<int64_t>(out.size()) / elements;
  for (int64_t block = 0; block < num_blocks; ++block) {
    function(tensor.data + block * bytes, out.data() + block * elements);
  }
}

}  // namespace zipage
