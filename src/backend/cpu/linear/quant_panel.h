// Packing and unpacking panels of packed weights (panel_format.h), one element at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/panel_format.h"
#include "tensor/dtype.h"

namespace zipage::cpu {

// Writes output `n` of a panel, zeros so far, from a row of `dtype` blocks as the file has them.
void pack_quant_row(DType dtype,
                    const std::byte* row,
                    int64_t in_features,
                    int64_t n,
                    PanelFormat format,
                    std::byte* panel);

// Weights of output `n`.
void unpack_quant_row(
    PanelFormat format, const std::byte* panel, int64_t in_features, int64_t n, float* row);

// The whole panel as f32: [in_features][16].
void expand_quant_panel(PanelFormat format,
                        const std::byte* panel,
                        int64_t in_features,
                        float* out);

}  // namespace zipage::cpu
