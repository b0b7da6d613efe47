// GEMM and GEMV over panels of plain weights (bf16, f16, f32) with inputs in f32; one set per
// instruction set (gemm_kernels.cc). The table of sets is runtime/kernel_set.h.
#pragma once

#include "backend/cpu/linear/linear_kernel.h"

namespace zipage::cpu {

struct GemmKernels {
  LinearKernel bf16, f16, f32;

  // `format`: kBF16, kF16 or kF32.
  LinearKernel of(PanelFormat format) const {
    return format == PanelFormat::kBF16 ? bf16 : format == PanelFormat::kF16 ? f16 : f32;
  }
};

}  // namespace zipage::cpu
