#include "backend/cpu/linear/linear_plan.h"

#include "backend/cpu/linear/quant_panel.h"
#include "backend/cpu/runtime/kernel_set.h"
#include "base/check.h"

namespace zipage::cpu {
namespace {

template <PanelFormat kFormat>
void expand_scalar(const std::byte* panel, int64_t in_features, float* out) {
  expand_quant_panel(kFormat, panel, in_features, out);
}

constexpr ExpandPanel kScalarExpand[kNumQuantFormats] = {
    expand_scalar<PanelFormat::kQ8>,    expand_scalar<PanelFormat::kQ4>,
    expand_scalar<PanelFormat::kQ4Min>, expand_scalar<PanelFormat::kQ5>,
    expand_scalar<PanelFormat::kQ5Min>, expand_scalar<PanelFormat::kQ4K>,
    expand_scalar<PanelFormat::kQ5K>,   expand_scalar<PanelFormat::kQ6K>};

#if defined(__x86_64__)

// A tile product has 16 rows: with fewer than half of them in use, vectors are as fast, since
// memory decides.
constexpr int64_t kMinTileRows = 8;
bool use_tiles(int64_t num_rows, const CpuContext& context) {
  return context.isa == Isa::kAmx && num_rows >= kMinTileRows;
}
// So many rows make up for expanding packed weights to bf16: tiles of bytes scale each block.
constexpr int64_t kMinExpandedTileRows = 96;

// Packed weights, inputs as they are: f32 sums over weights as the file defines them.
LinearPlan plan_packed(PanelFormat format, int64_t num_rows, const CpuContext& context) {
  LinearPlan plan;
  if (num_rows == 1) {
    plan.kernel = quant_gemv_avx2(format);
    return plan;
  }
  plan.expand = expand_avx2(format);
  plan.kernel = kernel_set(context.isa).gemm.f32;
  return plan;
}

// Packed weights, inputs rounded: to 8 bits, or to bf16 where tile products make up for expanding
// the weights.
LinearPlan plan_packed_rounded(PanelFormat format, int64_t num_rows, const CpuContext& context) {
  LinearPlan plan;
  if (context.isa == Isa::kAmx && num_rows >= kMinExpandedTileRows) {
    plan.inputs = InputForm::kBF16;
    plan.round_inputs = round_inputs_avx512bf16;
    plan.expand = expand_avx2(format);
    plan.round_panel = round_panel_avx512bf16;
    plan.kernel = linear_bf16_amx;
    return plan;
  }
  plan.inputs = InputForm::kInt8;
  plan.round_int8 = round_int8_avx2;
  const bool vnni = context.isa >= Isa::kAvx512 && context.features.avx512_vnni;
  plan.kernel = use_tiles(num_rows, context) ? linear_int8_amx(format)
                : vnni                       ? linear_int8_avx512vnni(format)
                                             : linear_int8_avx2(format);
  return plan;
}

LinearPlan plan_x86(PanelFormat format, int64_t num_rows, const CpuContext& context) {
  const bool round = context.dtype == DType::kBF16;
  if (is_quant(format)) {
    return round ? plan_packed_rounded(format, num_rows, context)
                 : plan_packed(format, num_rows, context);
  }
  LinearPlan plan;
  if (round && format == PanelFormat::kBF16 && context.isa >= Isa::kAvx512 &&
      context.features.avx512_bf16) {
    plan.inputs = InputForm::kBF16;
    plan.round_inputs = round_inputs_avx512bf16;
    plan.kernel = use_tiles(num_rows, context) ? linear_bf16_amx : linear_bf16_avx512bf16;
  } else {
    plan.kernel = kernel_set(context.isa).gemm.of(format);
  }
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
  plan.kernel = kernel_set(context.isa).gemm.of(is_quant(format) ? PanelFormat::kF32 : format);
  if (is_quant(format)) {
    plan.expand = kScalarExpand[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
  }
  return plan;
}

}  // namespace zipage::cpu
