// How panels store weights. Constants only: also for the files of one instruction set, which must
// not share functions with others.
#pragma once

#include <cstdint>

namespace zipage::cpu {

inline constexpr int64_t kPanelOutputs = 16;  // a panel: 16 output features

// Outputs beyond the last panel's end and inputs beyond in_features are zeros.
enum class PanelFormat : uint8_t {
  kBF16,  // [padded_in / 2][16 outputs][2 inputs], padded_in a multiple of 32: the pairs of VNNI
          // and AMX products
  kF16,   // [in][16 outputs]
  kF32,   // [in][16 outputs]
  // Packed weights, as many bytes as in a GGUF file. See QuantLayout.
  kQ8,     // Q8_0
  kQ4,     // Q4_0
  kQ4Min,  // Q4_1
  kQ5,     // Q5_0
  kQ5Min,  // Q5_1
  kQ4K,    // Q4_K
  kQ5K,    // Q5_K
  kQ6K,    // Q6_K
};
inline constexpr int kNumQuantFormats = 8;

constexpr bool is_quant(PanelFormat format) { return format >= PanelFormat::kQ8; }

inline constexpr int64_t kQuantBlock = 32;  // inputs

// A panel of packed weights is a run of groups of 1 or (K types) 8 blocks of 32 inputs. A group is
// its scales, padded to nothing, and then the integers of its blocks.
//
// Scales: [16 outputs] f16 d; with minima [16] f16 m; in a K type then for each block
//  - kQ4K, kQ5K: 24 bytes of 6-bit numbers, the block's scale s and minimum t of each output: byte
//    n < 16 has the low four bits of output n's s, then those of its t; byte 16 + n, n < 8, the
//    upper two bits of s and of t of output n, then of output n + 8;
//  - kQ6K: [2][16] i8 s, of the block's first and last 16 inputs.
// Weight, q being the integer without a sign except in kQ8:
//  - kQ8: d q;  kQ4: d (q - 8);  kQ5: d (q - 16);  kQ4Min, kQ5Min: d q + m;
//  - kQ4K, kQ5K: (d s) q - (m t);  kQ6K: (d s) (q - 32).
//
// Integers of a block: 64-byte lines [16 outputs][4 inputs].
//  - 8 bits: 8 lines, line j of inputs 4 j + i;
//  - others: 4 lines of the low four bits, low halves of line j being inputs 4 j + i and high
//  halves
//    inputs 16 + 4 j + i;
//  - 5 bits: then one line of fifth bits, at bit j for inputs 4 j + i, j < 8;
//  - 6 bits: then two lines, for inputs 0-15 and 16-31, of upper bits: two at bit 2 j for inputs
//    4 j + i of the half.
struct QuantLayout {
  int bits;        // of an integer
  int num_blocks;  // in a group
  bool minima;

  constexpr int64_t block_scale_bytes() const { return num_blocks == 1 ? 0 : minima ? 24 : 32; }
  constexpr int64_t scale_bytes() const {
    return (minima ? 64 : 32) + num_blocks * block_scale_bytes();
  }
  constexpr int64_t integer_bytes() const { return bits * 64; }  // of a block
  constexpr int64_t group_bytes() const { return scale_bytes() + num_blocks * integer_bytes(); }
  constexpr int64_t group_inputs() const { return num_blocks * kQuantBlock; }
};

constexpr QuantLayout quant_layout(PanelFormat format) {
  switch (format) {
    case PanelFormat::kQ8:
      return {8, 1, false};
    case PanelFormat::kQ4:
      return {4, 1, false};
    case PanelFormat::kQ4Min:
      return {4, 1, true};
    case PanelFormat::kQ5:
      return {5, 1, false};
    case PanelFormat::kQ5Min:
      return {5, 1, true};
    case PanelFormat::kQ4K:
      return {4, 8, true};
    case PanelFormat::kQ5K:
      return {5, 8, true};
    case PanelFormat::kQ6K:
      return {6, 8, false};
    default:
      return {0, 0, false};
  }
}

}  // namespace zipage::cpu
