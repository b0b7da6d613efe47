// Panels of packed weights (GGUF's types of blocks of 32): 16 outputs x 32 inputs a block, as many
// bytes as in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear.h"

namespace zipage::cpu {

inline constexpr int64_t kQuantBlock = 32;  // inputs

// A block of a panel: [16] f16 scales d; with minima [16] f16 m; then the integers q. Weight = d q,
// or d q + m, or, of 4-bit integers without minima, d (q - 8). 8-bit q: [8][16 outputs][4 inputs]:
// a 64-byte line holds 4 successive inputs of every output. 4-bit q: [4][16 outputs][4 inputs]: low
// halves are inputs 4 line + i, high halves inputs 16 + 4 line + i.
struct QuantLayout {
  bool nibbles;
  bool minima;

  int64_t header_bytes() const { return minima ? 64 : 32; }
  int64_t block_bytes() const { return header_bytes() + (nibbles ? 256 : 512); }
};

bool is_quant(PanelFormat format);
QuantLayout quant_layout(PanelFormat format);

// Writes output `n` of a panel from a row of `dtype` blocks as the file has them. `num_blocks`
// blocks of 32 inputs.
void pack_quant_row(DType dtype,
                    const std::byte* row,
                    int64_t num_blocks,
                    int64_t n,
                    PanelFormat format,
                    std::byte* panel);

// Weights of output `n`.
void unpack_quant_row(
    PanelFormat format, const std::byte* panel, int64_t num_blocks, int64_t n, float* row);

// The whole panel as f32: [32 * num_blocks][16].
void expand_quant_panel(PanelFormat format, const std::byte* panel, int64_t num_blocks, float* out);

}  // namespace zipage::cpu
