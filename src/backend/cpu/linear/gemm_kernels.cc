// GEMM and GEMV over panels of plain weights: bf16, f16 and f32, inputs and sums in f32.
//
// Idea: weights lie in panels of 16 outputs, input by input, so that a step loads 16 weights and
// multiplies them by one broadcast input of each row. The sums of a tile, rows x panels, stay in
// registers; gemm_tile.h says which tile comes next.
//
// Cost of 6144 x 1024 (gate and up of Qwen3-0.6B) in bf16: 12.6 MB of weights and 12.6 Mflop a row.
// One row is bound by memory, many rows by the multiply-adds.
// bench_ops_cpu_linear prints the share of the measured bandwidth (few rows) and of the measured
// multiply-add peak (many rows) of the machine at hand.
// Tried and dropped: lambdas called once for each index instead of unrolled loops (the same code,
// twice the time to compile); all weights of a step loaded first for one row with AVX2 (ten spills).
#include "backend/cpu/linear/gemm_kernels.h"

#include "backend/cpu/linear/gemm_tile.h"

namespace zipage::cpu {
namespace {

struct Bf16Weights : F32Products {
  static constexpr int64_t kStep = 2;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_INLINE Vec get(const std::byte* p, int input, int vector) {
    return load_pairs(reinterpret_cast<const BF16*>(p) + 2 * kWidth * vector, input);
  }
};

struct F16Weights : F32Products {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 32;
  static ZIPAGE_INLINE Vec get(const std::byte* p, int, int vector) {
    return load(reinterpret_cast<const F16*>(p) + kWidth * vector);
  }
};

struct F32Weights : F32Products {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_INLINE Vec get(const std::byte* p, int, int vector) {
    return load(reinterpret_cast<const float*>(p) + kWidth * vector);
  }
};

}  // namespace

namespace ZIPAGE_ISA {
extern const GemmKernels kGemm = {run_gemm<Bf16Weights>, run_gemm<F16Weights>,
                                  run_gemm<F32Weights>};
}  // namespace ZIPAGE_ISA
}  // namespace zipage::cpu
