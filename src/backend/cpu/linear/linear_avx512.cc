// Linear kernels for AVX-512 in f32. An output element is the same chain of fused multiply-adds as
// with AVX2.
#include "backend/cpu/linear/linear_tile512.h"

namespace zipage::cpu {
namespace {

struct F32Sums {
  using Vector = __m512;
  static constexpr int64_t kInputsPerX = 1;
  static ZIPAGE_ALWAYS_INLINE inline __m512 multiply_add(__m512 x, __m512 w, __m512 sum) {
    return _mm512_fmadd_ps(x, w, sum);
  }
};

struct Bf16 : F32Sums {
  static constexpr int64_t kStep = 2;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_ALWAYS_INLINE inline __m512 get(const std::byte* p, int i) {
    const __m512i pair = _mm512_loadu_si512(p);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(i == 0 ? _mm512_slli_epi32(pair, 16) : _mm512_and_si512(pair, high));
  }
};

struct F16 : F32Sums {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 32;
  static ZIPAGE_ALWAYS_INLINE inline __m512 get(const std::byte* p, int) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

struct F32 : F32Sums {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_ALWAYS_INLINE inline __m512 get(const std::byte* p, int) {
    return _mm512_loadu_ps(p);
  }
};

}  // namespace

void linear_bf16_avx512(const LinearTask& task) { run_linear<Kernel<Bf16>>(task); }
void linear_f16_avx512(const LinearTask& task) { run_linear<Kernel<F16>>(task); }
void linear_f32_avx512(const LinearTask& task) { run_linear<Kernel<F32>>(task); }

}  // namespace zipage::cpu
