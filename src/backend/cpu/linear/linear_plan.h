// Which kernel multiplies which panels, on this machine.
#pragma once

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/runtime/context.h"

namespace zipage::cpu {

enum class InputForm : uint8_t {
  kF32,   // as they come
  kBF16,  // rounded by round_inputs
  kInt8,  // rounded by round_int8
};

struct LinearPlan {
  LinearKernel kernel = nullptr;
  InputForm inputs = InputForm::kF32;
  void (*round_inputs)(const float* x,
                       int64_t count,
                       int64_t padded_count,
                       uint16_t* rounded) = nullptr;
  void (*round_int8)(const float* x, int64_t num_blocks, Int8Block* rounded) = nullptr;
  // Packed weights that the kernel does not read as they lie: panels become f32 in scratch first,
  // or with round_panel bf16, up to kExpandedPanels at a time.
  ExpandPanel expand = nullptr;
  void (*round_panel)(const float* panel,
                      int64_t count,
                      int64_t padded_count,
                      uint16_t* rounded) = nullptr;
};

inline constexpr int64_t kExpandedPanels = 2;

LinearPlan plan_linear(PanelFormat format, int64_t num_rows, const CpuContext& context);

}  // namespace zipage::cpu
