// Packed weights times 8-bit inputs with AVX-512 VNNI.
#include "backend/cpu/linear_int8_body.h"

namespace zipage::cpu {
namespace {

struct Vnni {
  using Float = __m512;
  static constexpr int kVectors = 1;  // a panel
  static constexpr int kLanes = 16;

  static ZIPAGE_ALWAYS_INLINE inline Float zero() { return _mm512_setzero_ps(); }
  static ZIPAGE_ALWAYS_INLINE inline Float splat(float x) { return _mm512_set1_ps(x); }
  static ZIPAGE_ALWAYS_INLINE inline Float load(const float* p) { return _mm512_loadu_ps(p); }
  static ZIPAGE_ALWAYS_INLINE inline void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static ZIPAGE_ALWAYS_INLINE inline Float multiply(Float a, Float b) {
    return _mm512_mul_ps(a, b);
  }
  static ZIPAGE_ALWAYS_INLINE inline Float fma(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static ZIPAGE_ALWAYS_INLINE inline Float scale(const std::byte* p, int) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }

  static ZIPAGE_ALWAYS_INLINE inline __m512i four_inputs(const Int8Block& x, int64_t k) {
    int32_t four;
    __builtin_memcpy(&four, x.values + k, sizeof four);
    return _mm512_set1_epi32(four);
  }

  template <typename L, int R>
  static ZIPAGE_ALWAYS_INLINE inline void dot_block(
      const std::byte* lines, int, const Int8Block* x, int64_t x_stride, Float (&dot)[R]) {
    __m512i sum[R];
    __m512i excess = _mm512_setzero_si512();
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE { sum[r] = _mm512_setzero_si512(); });
    unroll<L::lines>([&](auto j) ZIPAGE_ALWAYS_INLINE {
      const __m512i line = _mm512_loadu_si512(lines + 64 * j);
      if constexpr (L::nibbles) {
        const __m512i four_bits = _mm512_set1_epi8(0xf);
        const __m512i low = _mm512_and_si512(line, four_bits);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), four_bits);
        unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
          const Int8Block& in = x[r * x_stride];
          sum[r] = _mm512_dpbusd_epi32(sum[r], low, four_inputs(in, 4 * j));
          sum[r] = _mm512_dpbusd_epi32(sum[r], high, four_inputs(in, 16 + 4 * j));
        });
      } else {
        // The product takes one unsigned operand: the input plus 128, and 128 times the weights'
        // sum off at the end.
        const __m512i shift = _mm512_set1_epi8(static_cast<char>(0x80));
        excess = _mm512_dpbusd_epi32(excess, shift, line);
        unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
          const __m512i in = _mm512_xor_si512(four_inputs(x[r * x_stride], 4 * j), shift);
          sum[r] = _mm512_dpbusd_epi32(sum[r], in, line);
        });
      }
    });
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
      dot[r] = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r], excess));
    });
  }
};

}  // namespace

void linear_int8_q8_avx512vnni(const LinearTask& task) {
  run_int8<Vnni, QuantPanel<false, false>>(task);
}
void linear_int8_q8min_avx512vnni(const LinearTask& task) {
  run_int8<Vnni, QuantPanel<false, true>>(task);
}
void linear_int8_q4_avx512vnni(const LinearTask& task) {
  run_int8<Vnni, QuantPanel<true, false>>(task);
}
void linear_int8_q4min_avx512vnni(const LinearTask& task) {
  run_int8<Vnni, QuantPanel<true, true>>(task);
}

}  // namespace zipage::cpu
