#include "backend/cpu/linear/quant_panel.h"

#include <cstring>

#include "base/check.h"
#include "tensor/tensor.h"

namespace zipage::cpu {
namespace {

uint16_t load_u16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

int load_u8(const std::byte* at) { return std::to_integer<int>(*at); }
int load_i8(const std::byte* at) { return static_cast<int8_t>(load_u8(at)); }
void add_bits(std::byte& to, int bits) { to |= static_cast<std::byte>(bits); }

// Integer `k` of a 32-block in the file, without its sign's offset. 5-bit types have their fifth
// bits in the 4 bytes before the others.
int block_integer(DType dtype, const std::byte* integers, int64_t k) {
  if (dtype == DType::kQ8_0) return load_i8(integers + k);
  const int nibble = k < 16 ? load_u8(integers + k) & 0xf : load_u8(integers + k - 16) >> 4;
  if (dtype == DType::kQ4_0 || dtype == DType::kQ4_1) return nibble;
  const int fifth = load_u8(integers - 4 + k / 8) >> (k % 8) & 1;
  return nibble | fifth << 4;
}

// Integer `k` of a 256-block in the file: see tensor/dequantize.cc for the types.
int super_integer(DType dtype, const std::byte* block, int64_t k) {
  if (dtype == DType::kQ6_K) {
    const int64_t half = k / 128, in_half = k % 128;
    const int byte = load_u8(block + 64 * half + in_half % 64);
    const int low = in_half < 64 ? byte & 0xf : byte >> 4;
    const int high = load_u8(block + 128 + 32 * half + in_half % 32) >> (in_half / 32 * 2) & 3;
    return low | high << 4;
  }
  const int64_t j = k / 32, i = k % 32;
  const std::byte* runs = block + (dtype == DType::kQ5_K ? 48 : 16);
  const int byte = load_u8(runs + j / 2 * 32 + i);
  const int nibble = j % 2 == 0 ? byte & 0xf : byte >> 4;
  if (dtype == DType::kQ4_K) return nibble;
  return nibble | (load_u8(block + 16 + i) >> j & 1) << 4;
}

int64_t integers_offset(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 4;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 8;
    default:
      break;
  }
  ZIPAGE_CHECK(false);
  return 0;
}

// 6-bit scale and minimum of block j of a Q4_K or Q5_K block, out of its 12 bytes.
struct ScaleMin {
  int scale, min;
};
ScaleMin file_scale_min(const std::byte* packed, int64_t j) {
  if (j < 4) return {load_u8(packed + j) & 0x3f, load_u8(packed + 4 + j) & 0x3f};
  const int low = load_u8(packed + 4 + j);
  return {(low & 0xf) | load_u8(packed + j - 4) >> 6 << 4,
          (low >> 4) | load_u8(packed + j) >> 6 << 4};
}

// Writes integer q of input `k` < 32 of output `n` into a block's integers, zeros so far.
void put_integer(int bits, int64_t n, int64_t k, int q, std::byte* integers) {
  const int64_t place = n * 4 + k % 4;
  const auto j = static_cast<int>(k / 4);
  if (bits == 8) {
    integers[64 * j + place] = static_cast<std::byte>(q);
    return;
  }
  add_bits(integers[64 * (j % 4) + place], (q & 0xf) << (j < 4 ? 0 : 4));
  if (bits == 5) add_bits(integers[256 + place], q >> 4 << j);
  if (bits == 6) add_bits(integers[256 + 64 * (j / 4) + place], q >> 4 << (2 * (j % 4)));
}

int get_integer(int bits, int64_t n, int64_t k, const std::byte* integers) {
  const int64_t place = n * 4 + k % 4;
  const auto j = static_cast<int>(k / 4);
  if (bits == 8) return load_i8(integers + 64 * j + place);
  const int low = load_u8(integers + 64 * (j % 4) + place) >> (j < 4 ? 0 : 4) & 0xf;
  if (bits == 5) return low | (load_u8(integers + 256 + place) >> j & 1) << 4;
  if (bits == 6)
    return low | (load_u8(integers + 256 + 64 * (j / 4) + place) >> (2 * (j % 4)) & 3) << 4;
  return low;
}

// Weight of input `k` of a group.
float weight(PanelFormat format, const std::byte* group, int64_t n, int64_t k) {
  const QuantLayout layout = quant_layout(format);
  const int64_t block = k / kQuantBlock, in_block = k % kQuantBlock;
  const int q = get_integer(layout.bits, n, in_block,
                            group + layout.scale_bytes() + block * layout.integer_bytes());
  const float d = f16_to_f32(load_u16(group + 2 * n));
  const float m = layout.minima ? f16_to_f32(load_u16(group + 32 + 2 * n)) : 0.0f;
  const std::byte* scales = group + (layout.minima ? 64 : 32) + block * layout.block_scale_bytes();
  if (format == PanelFormat::kQ6K) {
    const auto s = static_cast<float>(load_i8(scales + in_block / 16 * 16 + n));
    return d * s * static_cast<float>(q - 32);
  }
  if (layout.num_blocks == 8) {
    const int low = load_u8(scales + n), high = load_u8(scales + 16 + n % 8) >> (n < 8 ? 0 : 4);
    const auto s = static_cast<float>((low & 0xf) | (high & 3) << 4);
    const auto t = static_cast<float>(low >> 4 | (high >> 2 & 3) << 4);
    return d * s * static_cast<float>(q) - m * t;
  }
  if (layout.minima) return d * static_cast<float>(q) + m;
  return d * static_cast<float>(layout.bits == 8 ? q : q - (1 << (layout.bits - 1)));
}

void pack_block(DType dtype, const std::byte* from, int64_t n, PanelFormat format, std::byte* to) {
  const QuantLayout layout = quant_layout(format);
  std::memcpy(to + 2 * n, from, 2);
  if (layout.minima) std::memcpy(to + 32 + 2 * n, from + 2, 2);
  for (int64_t k = 0; k < kQuantBlock; ++k) {
    put_integer(layout.bits, n, k, block_integer(dtype, from + integers_offset(dtype), k),
                to + layout.scale_bytes());
  }
}

void pack_super_block(
    DType dtype, const std::byte* from, int64_t n, PanelFormat format, std::byte* to) {
  const QuantLayout layout = quant_layout(format);
  std::memcpy(to + 2 * n, from + (dtype == DType::kQ6_K ? 208 : 0), 2);
  if (layout.minima) std::memcpy(to + 32 + 2 * n, from + 2, 2);
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    std::byte* scales = to + (layout.minima ? 64 : 32) + block * layout.block_scale_bytes();
    if (dtype == DType::kQ6_K) {
      scales[n] = from[192 + 2 * block];
      scales[16 + n] = from[192 + 2 * block + 1];
    } else {
      const ScaleMin s = file_scale_min(from + 4, block);
      add_bits(scales[n], (s.scale & 0xf) | (s.min & 0xf) << 4);
      add_bits(scales[16 + n % 8], (s.scale >> 4 | s.min >> 4 << 2) << (n < 8 ? 0 : 4));
    }
    std::byte* integers = to + layout.scale_bytes() + block * layout.integer_bytes();
    for (int64_t k = 0; k < kQuantBlock; ++k) {
      put_integer(layout.bits, n, k, super_integer(dtype, from, block * kQuantBlock + k), integers);
    }
  }
}

}  // namespace

void pack_quant_row(DType dtype,
                    const std::byte* row,
                    int64_t in_features,
                    int64_t n,
                    PanelFormat format,
                    std::byte* panel) {
  const QuantLayout layout = quant_layout(format);
  ZIPAGE_CHECK_EQ(layout.group_inputs(), packed_block_elements(dtype));
  for (int64_t g = 0; g < in_features / layout.group_inputs(); ++g) {
    const std::byte* from = row + g * packed_block_bytes(dtype);
    std::byte* group = panel + g * layout.group_bytes();
    if (layout.num_blocks == 1) {
      pack_block(dtype, from, n, format, group);
    } else {
      pack_super_block(dtype, from, n, format, group);
    }
  }
}

void unpack_quant_row(
    PanelFormat format, const std::byte* panel, int64_t in_features, int64_t n, float* row) {
  const QuantLayout layout = quant_layout(format);
  for (int64_t k = 0; k < in_features; ++k) {
    row[k] = weight(format, panel + k / layout.group_inputs() * layout.group_bytes(), n,
                    k % layout.group_inputs());
  }
}

void expand_quant_panel(PanelFormat format,
                        const std::byte* panel,
                        int64_t in_features,
                        float* out) {
  const QuantLayout layout = quant_layout(format);
  for (int64_t k = 0; k < in_features; ++k) {
    const std::byte* group = panel + k / layout.group_inputs() * layout.group_bytes();
    for (int64_t n = 0; n < kPanelOutputs; ++n)
      out[k * kPanelOutputs + n] = weight(format, group, n, k % layout.group_inputs());
  }
}

}  // namespace zipage::cpu
