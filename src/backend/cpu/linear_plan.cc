#include "backend/cpu/linear_plan.h"

#include "base/check.h"

namespace zipage::cpu {
namespace {

LinearKernel by_format(PanelFormat format, LinearKernel bf16, LinearKernel f16, LinearKernel f32) {
  switch (format) {
    case PanelFormat::kBF16:
      return bf16;
    case PanelFormat::kF16:
      return f16;
    case PanelFormat::kF32:
      return f32;
  }
  return nullptr;
}

#if defined(__x86_64__)
// A tile product has 16 rows: with fewer than half of them in use, vectors are as fast, since
// memory decides.
constexpr int64_t kMinTileRows = 8;

LinearPlan plan_x86(PanelFormat format, int64_t num_rows, const CpuContext& context) {
  LinearPlan plan;
  if (context.isa == Isa::kAvx2) {
    plan.kernel = by_format(format, linear_bf16_avx2, linear_f16_avx2, linear_f32_avx2);
    return plan;
  }
  const bool round =
      context.dtype == DType::kBF16 && format == PanelFormat::kBF16 && context.features.avx512_bf16;
  if (!round) {
    plan.kernel = by_format(format, linear_bf16_avx512, linear_f16_avx512, linear_f32_avx512);
    return plan;
  }
  plan.inputs = InputForm::kBF16;
  plan.round_inputs = round_inputs_avx512bf16;
  const bool tiles = context.isa == Isa::kAmx && num_rows >= kMinTileRows;
  plan.kernel = tiles ? linear_bf16_amx : linear_bf16_avx512bf16;
  return plan;
}
#endif

}  // namespace

LinearPlan plan_linear(PanelFormat format, int64_t num_rows, const CpuContext& context) {
#if defined(__x86_64__)
  if (context.isa >= Isa::kAvx2) return plan_x86(format, num_rows, context);
#endif
  ZIPAGE_CHECK(context.isa == Isa::kScalar && num_rows > 0);
  LinearPlan plan;
  plan.kernel = by_format(format, linear_bf16_scalar, linear_f16_scalar, linear_f32_scalar);
  return plan;
}

}  // namespace zipage::cpu
