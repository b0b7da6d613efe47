// Packed weights times 8-bit inputs with AVX2.
#include "backend/cpu/linear_int8_body.h"

namespace zipage::cpu {
namespace {

struct Avx2 {
  using Float = __m256;
  static constexpr int kVectors = 2;  // a panel
  static constexpr int kLanes = 8;

  static ZIPAGE_ALWAYS_INLINE inline Float zero() { return _mm256_setzero_ps(); }
  static ZIPAGE_ALWAYS_INLINE inline Float splat(float x) { return _mm256_set1_ps(x); }
  static ZIPAGE_ALWAYS_INLINE inline Float load(const float* p) { return _mm256_loadu_ps(p); }
  static ZIPAGE_ALWAYS_INLINE inline void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static ZIPAGE_ALWAYS_INLINE inline Float multiply(Float a, Float b) {
    return _mm256_mul_ps(a, b);
  }
  static ZIPAGE_ALWAYS_INLINE inline Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static ZIPAGE_ALWAYS_INLINE inline Float scale(const std::byte* p, int half) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + half));
  }

  static ZIPAGE_ALWAYS_INLINE inline __m256i four_inputs(const Int8Block& x, int64_t k) {
    int32_t four;
    __builtin_memcpy(&four, x.values + k, sizeof four);
    return _mm256_set1_epi32(four);
  }

  template <typename L, int R>
  static ZIPAGE_ALWAYS_INLINE inline void dot_block(
      const std::byte* lines, int half, const Int8Block* x, int64_t x_stride, Float (&dot)[R]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[R];
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE { sum[r] = _mm256_setzero_si256(); });
    unroll<L::lines>([&](auto j) ZIPAGE_ALWAYS_INLINE {
      const __m256i line =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lines + 64 * j) + half);
      if constexpr (L::nibbles) {
        // A 16-bit lane adds 8 pairs of products: at most 8 * 2 * 15 * 127 = 30480.
        const __m256i four_bits = _mm256_set1_epi8(0xf);
        const __m256i low = _mm256_and_si256(line, four_bits);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(line, 4), four_bits);
        unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
          const Int8Block& in = x[r * x_stride];
          sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(low, four_inputs(in, 4 * j)));
          sum[r] =
              _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(high, four_inputs(in, 16 + 4 * j)));
        });
      } else {
        // The product takes one unsigned operand: |w|, with w's sign moved to the input. A pair is
        // at most 2 * 128 * 127.
        const __m256i size = _mm256_abs_epi8(line);
        unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
          const __m256i in = _mm256_sign_epi8(four_inputs(x[r * x_stride], 4 * j), line);
          sum[r] =
              _mm256_add_epi32(sum[r], _mm256_madd_epi16(_mm256_maddubs_epi16(size, in), ones));
        });
      }
    });
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
      dot[r] = _mm256_cvtepi32_ps(L::nibbles ? _mm256_madd_epi16(sum[r], ones) : sum[r]);
    });
  }
};

}  // namespace

void linear_int8_q8_avx2(const LinearTask& task) { run_int8<Avx2, QuantPanel<false, false>>(task); }
void linear_int8_q8min_avx2(const LinearTask& task) {
  run_int8<Avx2, QuantPanel<false, true>>(task);
}
void linear_int8_q4_avx2(const LinearTask& task) { run_int8<Avx2, QuantPanel<true, false>>(task); }
void linear_int8_q4min_avx2(const LinearTask& task) {
  run_int8<Avx2, QuantPanel<true, true>>(task);
}

void round_int8_avx2(const float* x, int64_t num_blocks, Int8Block* rounded) {
  for (int64_t b = 0; b < num_blocks; ++b, x += kInt8Block) {
    __m256 v[4];
    __m256 largest = _mm256_setzero_ps(), poison = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
      poison = _mm256_add_ps(
          poison, _mm256_mul_ps(v[i], _mm256_setzero_ps()));  // NaN if any input is NaN or infinite
    }
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    top = _mm_max_ss(top, _mm_shuffle_ps(top, top, 1));
    const float size = _mm_cvtss_f32(top);
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, poison);
    float not_finite = 0;
    for (const float lane : lanes) not_finite += lane;
    constexpr float kTiny = 1e-30f;  // below, the inverse could overflow
    const float inverse = size > kTiny ? 127.0f / size : 0.0f;
    __m256i whole[4];
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
      sum = _mm256_add_epi32(sum, whole[i]);
    }
    // Packing works within halves of 128 bits; the permutation restores the order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                             _mm256_packs_epi32(whole[2], whole[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    Int8Block& to = rounded[b];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.values),
                        _mm256_permutevar8x32_epi32(bytes, order));
    alignas(32) int32_t sums[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums), sum);
    int32_t total = 0;
    for (const int32_t s : sums) total += s;
    to.scale = size / 127.0f + not_finite;
    to.scaled_sum = to.scale * static_cast<float>(total);
  }
}

}  // namespace zipage::cpu
