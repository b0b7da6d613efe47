// Norms and ops that read and write each element once. The work of a token is too small to split,
// tokens are spread.
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/kernel_set.h"
#include "base/error.h"

namespace zipage::cpu {
namespace {

// Elements a thread takes at a time: about the time of waking it.
constexpr int64_t kGrainElements = 16384;

int64_t grain_rows(int64_t row_elements) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
}

void require_f32(const char* op, DType dtype) {
  if (dtype != DType::kF32)
    fail_invalid("{}: dtype {}: a CPU computes in f32", op, to_string(dtype));
}

}  // namespace

void rms_norm(const RmsNormArgs& args, CpuContext& context) {
  require_f32("rms_norm", args.dtype);
  const ElementwiseKernels& kernels = kernel_set(context.isa).elementwise;
  const int64_t width = args.hidden;
  context.pool->parallel_for(args.num_tokens, grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* residual =
          args.residual == nullptr ? nullptr : static_cast<float*>(args.residual) + t * width;
      kernels.rms_norm(static_cast<const float*>(args.x) + t * width, residual, args.weight,
                       args.eps, width, static_cast<float*>(args.out) + t * width);
    }
  });
}

void silu_mul(const SiluMulArgs& args, CpuContext& context) {
  require_f32("silu_mul", args.dtype);
  const ElementwiseKernels& kernels = kernel_set(context.isa).elementwise;
  const int64_t width = args.intermediate;
  context.pool->parallel_for(
      args.num_tokens, grain_rows(2 * width), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const float* gate = static_cast<const float*>(args.gate_up) + t * 2 * width;
          kernels.silu_mul(gate, gate + width, width, static_cast<float*>(args.out) + t * width);
        }
      });
}

void gather_rows(const GatherRowsArgs& args, CpuContext& context) {
  const auto row_bytes = static_cast<size_t>(dtype_bytes(args.dtype, args.hidden));
  context.pool->parallel_for(
      args.num_rows, grain_rows(args.hidden), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          std::memcpy(
              static_cast<std::byte*>(args.out) + static_cast<size_t>(i) * row_bytes,
              static_cast<const std::byte*>(args.x) + static_cast<size_t>(args.rows[i]) * row_bytes,
              row_bytes);
        }
      });
}

}  // namespace zipage::cpu
