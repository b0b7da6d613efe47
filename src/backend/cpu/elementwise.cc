// Ops that read and write each element once.
#include <cmath>
#include <cstring>

#include "backend/cpu/ops.h"
#include "base/check.h"

namespace zipage::cpu {

void rms_norm(const RmsNormArgs& args, CpuContext& context) {
  ZIPAGE_CHECK(args.dtype == DType::kF32);
  context.pool->parallel_for(args.num_tokens, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* x = static_cast<const float*>(args.x) + t * args.hidden;
      float* out = static_cast<float*>(args.out) + t * args.hidden;
      if (args.residual != nullptr) {
        float* residual = static_cast<float*>(args.residual) + t * args.hidden;
        for (int32_t i = 0; i < args.hidden; ++i) residual[i] += x[i];
        x = residual;
      }
      float sum = 0;
      for (int32_t i = 0; i < args.hidden; ++i) sum += x[i] * x[i];
      const float factor = 1.0f / std::sqrt(sum / static_cast<float>(args.hidden) + args.eps);
      for (int32_t i = 0; i < args.hidden; ++i) out[i] = x[i] * factor * args.weight[i];
    }
  });
}

void silu_mul(const SiluMulArgs& args, CpuContext& context) {
  ZIPAGE_CHECK(args.dtype == DType::kF32);
  const int64_t width = args.intermediate;
  context.pool->parallel_for(args.num_tokens, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = static_cast<const float*>(args.gate_up) + t * 2 * width;
      const float* up = gate + width;
      float* out = static_cast<float*>(args.out) + t * width;
      for (int64_t i = 0; i < width; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    }
  });
}

void gather_rows(const GatherRowsArgs& args, CpuContext&) {
  const auto row_bytes = static_cast<size_t>(dtype_bytes(args.dtype, args.hidden));
  for (int32_t i = 0; i < args.num_rows; ++i) {
    std::memcpy(
        static_cast<std::byte*>(args.out) + static_cast<size_t>(i) * row_bytes,
        static_cast<const std::byte*>(args.x) + static_cast<size_t>(args.rows[i]) * row_bytes,
        row_bytes);
  }
}

}  // namespace zipage::cpu
