// GEMM and GEMV for AVX-512 BF16: inputs rounded to bf16, products of pairs added in f32.
//
// Idea: the tiles of gemm_tile.h with vdpbf16ps, which takes a pair of inputs of 16 outputs at a time:
// half the instructions of the f32 kernel and no conversion of the weights.
//
// Cost of 6144 x 1024: 12.6 MB and 12.6 Mflop a row, as in gemm_kernels.cc; one row is bound by memory.
// Measure with bench_ops_cpu_linear --dtype bf16 --compute bf16.
#include "backend/cpu/linear/gemm_tile.h"

namespace zipage::cpu {
namespace {

struct Bf16Pairs {
  using Vector = __m512bh;
  static constexpr int64_t kInputsPerX = 2;
  static constexpr int64_t kStep = 2;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_INLINE __m512bh get(const std::byte* p, int, int) {
    return (__m512bh)_mm512_loadu_si512(p);
  }
  template <int N>
  static ZIPAGE_INLINE void multiply_add(const float* x, const __m512bh (&w)[N], Vec* sums) {
    const auto pair = (__m512bh)_mm512_set1_ps(*x);
    ZIPAGE_UNROLL
    for (int i = 0; i < N; ++i) sums[i].v = _mm512_dpbf16_ps(sums[i].v, pair, w[i]);
  }
};

}  // namespace

// An odd last input meets the zeros that pad x and the panels.
void linear_bf16_avx512bf16(const LinearTask& task) { run_gemm<Bf16Pairs>(task); }

void round_inputs_avx512bf16(const float* x,
                             int64_t count,
                             int64_t padded_count,
                             uint16_t* rounded) {
  for (int64_t k = 0; k < padded_count; k += 32) {
    __m512 part[2];
    for (int h = 0; h < 2; ++h) {
      const int64_t left = count - k - 16 * h;
      const __mmask16 mask = static_cast<__mmask16>(left >= 16  ? 0xffffu
                                                    : left <= 0 ? 0u
                                                                : (1u << left) - 1u);
      part[h] = _mm512_maskz_loadu_ps(mask, x + k + 16 * h);
    }
    const __m512bh both = _mm512_cvtne2ps_pbh(part[1], part[0]);
    _mm512_storeu_si512(rounded + k, (__m512i)both);
  }
}

void round_panel_avx512bf16(const float* panel,
                            int64_t count,
                            int64_t padded_count,
                            uint16_t* rounded) {
  for (int64_t k = 0; k < padded_count; k += 2) {
    const __m512 zero = _mm512_setzero_ps();
    const __m512 first = k < count ? _mm512_loadu_ps(panel + k * kPanel) : zero;
    const __m512 second = k + 1 < count ? _mm512_loadu_ps(panel + (k + 1) * kPanel) : zero;
    // [16 of second][16 of first] becomes pairs.
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
    _mm512_storeu_si512(rounded + k * kPanel, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

}  // namespace zipage::cpu
