#include "backend/cpu/quant_panel.h"

#include <cstring>

#include "base/check.h"

namespace zipage::cpu {
namespace {

uint16_t load_u16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

int load_u8(const std::byte* at) { return std::to_integer<int>(*at); }

// Where input `k` of output `n` lies in a block's integers, in bytes.
int64_t place(const QuantLayout& layout, int64_t n, int64_t k) {
  const int64_t in_half = layout.nibbles ? k % 16 : k;
  return layout.header_bytes() + (in_half / 4 * kPanelOutputs + n) * 4 + in_half % 4;
}

// Integer `k` of a block in the file; 5-bit types have their fifth bits in the 4 bytes before the
// others.
int file_integer(DType dtype, const std::byte* integers, int64_t k) {
  if (dtype == DType::kQ8_0) return static_cast<int8_t>(load_u8(integers + k));
  const int nibble = k < 16 ? load_u8(integers + k) & 0xf : load_u8(integers + k - 16) >> 4;
  if (dtype == DType::kQ4_0 || dtype == DType::kQ4_1) return nibble;
  const int fifth = load_u8(integers - 4 + k / 8) >> (k % 8) & 1;
  return (nibble | fifth << 4) - (dtype == DType::kQ5_0 ? 16 : 0);
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

float weight(const QuantLayout& layout, const std::byte* block, int64_t n, int64_t k) {
  const float d = f16_to_f32(load_u16(block + 2 * n));
  const int byte = load_u8(block + place(layout, n, k));
  if (!layout.nibbles) {
    const float product = d * static_cast<float>(static_cast<int8_t>(byte));
    return layout.minima ? product + f16_to_f32(load_u16(block + 32 + 2 * n)) : product;
  }
  const int q = k < 16 ? byte & 0xf : byte >> 4;
  if (!layout.minima) return d * static_cast<float>(q - 8);
  return d * static_cast<float>(q) + f16_to_f32(load_u16(block + 32 + 2 * n));
}

}  // namespace

bool is_quant(PanelFormat format) {
  return format != PanelFormat::kBF16 && format != PanelFormat::kF16 && format != PanelFormat::kF32;
}

QuantLayout quant_layout(PanelFormat format) {
  switch (format) {
    case PanelFormat::kQ8:
      return {false, false};
    case PanelFormat::kQ8Min:
      return {false, true};
    case PanelFormat::kQ4:
      return {true, false};
    case PanelFormat::kQ4Min:
      return {true, true};
    default:
      break;
  }
  ZIPAGE_CHECK(false);
  return {};
}

void pack_quant_row(DType dtype,
                    const std::byte* row,
                    int64_t num_blocks,
                    int64_t n,
                    PanelFormat format,
                    std::byte* panel) {
  const QuantLayout layout = quant_layout(format);
  for (int64_t b = 0; b < num_blocks; ++b) {
    const std::byte* from = row + b * packed_block_bytes(dtype);
    std::byte* block = panel + b * layout.block_bytes();
    std::memcpy(block + 2 * n, from, 2);
    if (layout.minima) std::memcpy(block + 32 + 2 * n, from + 2, 2);
    const std::byte* integers = from + integers_offset(dtype);
    for (int64_t k = 0; k < kQuantBlock; ++k) {
      const int q = file_integer(dtype, integers, k);
      std::byte& to = block[place(layout, n, k)];
      if (!layout.nibbles) {
        to = static_cast<std::byte>(static_cast<int8_t>(q));
      } else {
        to = k < 16 ? static_cast<std::byte>(q) : to | static_cast<std::byte>(q << 4);
      }
    }
  }
}

void unpack_quant_row(
    PanelFormat format, const std::byte* panel, int64_t num_blocks, int64_t n, float* row) {
  const QuantLayout layout = quant_layout(format);
  for (int64_t k = 0; k < num_blocks * kQuantBlock; ++k) {
    row[k] = weight(layout, panel + k / kQuantBlock * layout.block_bytes(), n, k % kQuantBlock);
  }
}

void expand_quant_panel(PanelFormat format,
                        const std::byte* panel,
                        int64_t num_blocks,
                        float* out) {
  const QuantLayout layout = quant_layout(format);
  for (int64_t k = 0; k < num_blocks * kQuantBlock; ++k) {
    const std::byte* block = panel + k / kQuantBlock * layout.block_bytes();
    for (int64_t n = 0; n < kPanelOutputs; ++n)
      out[k * kPanelOutputs + n] = weight(layout, block, n, k % kQuantBlock);
  }
}

}  // namespace zipage::cpu
