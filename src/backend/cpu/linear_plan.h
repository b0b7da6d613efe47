// Which kernel multiplies which panels, on this machine.
#pragma once

#include "backend/cpu/context.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/linear_kernel.h"

namespace zipage::cpu {

enum class InputForm : uint8_t {
  kF32,   // as they come
  kBF16,  // rounded by round_inputs
};

struct LinearPlan {
  LinearKernel kernel = nullptr;
  InputForm inputs = InputForm::kF32;
  void (*round_inputs)(const float* x,
                       int64_t count,
                       int64_t padded_count,
                       uint16_t* rounded) = nullptr;
};

LinearPlan plan_linear(PanelFormat format, int64_t num_rows, const CpuContext& context);

}  // namespace zipage::cpu
