// GEMM of packed weights with 8-bit inputs for AVX2.
//
// Idea: vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits. Integers of 4, 5
// and 6 bits are unsigned as they lie, and 8, 4 or 2 of their pairs fit into 16 bits before they are
// widened. 8-bit weights have a sign: it moves to the input (vpsignb), and every pair is widened.
//
// Cost of 6144 x 1024 in Q8_0 (8.5 bits a weight): 6.7 MB and 12.6 Mop a row; one row is bound by
// memory, several by vpmaddubsw. Measure with bench_ops_cpu_linear --dtype q8_0 --compute bf16.
// Tried and dropped: sums added by the compiler (it makes trees, whose leaves wait on the stack).
#include "backend/cpu/linear/int8_gemm.h"

namespace zipage::cpu {
namespace {

// sum += pairs of products. Written out: the compiler would add them as a tree, whose leaves then
// all wait on the stack.
ZIPAGE_INLINE void add_pairs(IVec size, IVec in, IVec& sum) {
  IVec product;
  __asm__(
      "vpmaddubsw %[in], %[size], %[product]\n\t"
      "vpaddw %[product], %[sum], %[sum]"
      : [product] "=&x"(product.v), [sum] "+x"(sum.v)
      : [in] "x"(in.v), [size] "x"(size.v));
}

// sum += fours of products of signed numbers: |w| times the input with w's sign.
ZIPAGE_INLINE void add_signed(IVec w, IVec size, IVec in, IVec ones, IVec& sum) {
  IVec product;
  __asm__(
      "vpsignb %[w], %[in], %[product]\n\t"
      "vpmaddubsw %[product], %[size], %[product]\n\t"
      "vpmaddwd %[ones], %[product], %[product]\n\t"
      "vpaddd %[product], %[sum], %[sum]"
      : [product] "=&x"(product.v), [sum] "+x"(sum.v)
      : [w] "x"(w.v), [size] "x"(size.v), [in] "x"(in.v), [ones] "x"(ones.v));
}

struct Avx2 {
  static constexpr int kMaxRows = 4;

  // kQ8: signed weights.
  template <int R>
  static ZIPAGE_INLINE void signed_dots(const std::byte* integers,
                                        const Int8Block* x,
                                        int64_t x_stride,
                                        IVec (&sum)[R][2]) {
    const IVec ones = {_mm256_set1_epi16(1)};
    ZIPAGE_UNROLL
    for (int i = 0; i < R * 2; ++i) sum[i / 2][i % 2] = splat_lanes(0);
    ZIPAGE_UNROLL
    for (int j = 0; j < 8; ++j) {
      IVec line[2], size[2];
      ZIPAGE_UNROLL
      for (int v = 0; v < 2; ++v) {
        line[v] = quant_line<PanelFormat::kQ8>(integers, j, v);
        size[v] = {_mm256_abs_epi8(line[v].v)};
      }
      ZIPAGE_UNROLL
      for (int r = 0; r < R; ++r) {
        const IVec in = splat_lanes(four_inputs(x[r * x_stride], j));
        ZIPAGE_UNROLL
        for (int v = 0; v < 2; ++v) add_signed(line[v], size[v], in, ones, sum[r][v]);
      }
    }
  }

  // Integers without a sign.
  template <PanelFormat kFormat, int R>
  static ZIPAGE_INLINE void unsigned_dots(const std::byte* integers,
                                          int part,
                                          const Int8Block* x,
                                          int64_t x_stride,
                                          IVec (&sum)[R][2]) {
    constexpr int kBits = quant_layout(kFormat).bits;
    constexpr int kLines = 8 / num_parts(kFormat);
    // Pairs of products that a 16-bit lane can add: each is at most 2 * 127 times the largest
    // integer, 63, 31 or 15.
    constexpr int kFit = kBits == 6 ? 2 : kBits == 5 ? 4 : 8;
    const __m256i ones = _mm256_set1_epi16(1);
    IVec narrow[R][2];
    ZIPAGE_UNROLL
    for (int t = 0; t < kLines; ++t) {
      const int j = line_at(kFormat, part, t);
      IVec size[2];
      ZIPAGE_UNROLL
      for (int v = 0; v < 2; ++v) size[v] = quant_line<kFormat>(integers, j, v);
      ZIPAGE_UNROLL
      for (int r = 0; r < R; ++r) {
        const IVec in = splat_lanes(four_inputs(x[r * x_stride], j));
        ZIPAGE_UNROLL
        for (int v = 0; v < 2; ++v) {
          if (t % kFit == 0) {
            narrow[r][v] = {_mm256_maddubs_epi16(size[v].v, in.v)};
          } else {
            add_pairs(size[v], in, narrow[r][v]);
          }
          if (t % kFit != kFit - 1) continue;
          const __m256i wide = _mm256_madd_epi16(narrow[r][v].v, ones);
          sum[r][v] = {t < kFit ? wide : _mm256_add_epi32(sum[r][v].v, wide)};
        }
      }
    }
  }

  template <PanelFormat kFormat, int R>
  static ZIPAGE_INLINE void dots(
      const std::byte* integers, int part, const Int8Block* x, int64_t x_stride, Vec (&dot)[R][2]) {
    IVec sum[R][2];
    if constexpr (kFormat == PanelFormat::kQ8) {
      signed_dots(integers, x, x_stride, sum);
    } else {
      unsigned_dots<kFormat>(integers, part, x, x_stride, sum);
    }
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) {
      ZIPAGE_UNROLL
      for (int v = 0; v < 2; ++v) {
        if constexpr (kFormat == PanelFormat::kQ6K) {
          const IVec inputs = splat_lanes(x[r * x_stride].sums[part]);
          sum[r][v] = {_mm256_sub_epi32(sum[r][v].v, (inputs << 5).v)};
        }
        dot[r][v] = to_float(sum[r][v]);
      }
    }
  }
};

}  // namespace

LinearKernel linear_int8_avx2(PanelFormat format) { return int8_kernel<Avx2>(format); }

void round_int8_avx2(const float* x, int64_t num_blocks, Int8Block* rounded) {
  for (int64_t b = 0; b < num_blocks; ++b, x += kQuantBlock) {
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
    for (int i = 0; i < 4; ++i)
      whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    // Packing works within halves of 128 bits; the permutation restores the order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                             _mm256_packs_epi32(whole[2], whole[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i packed = _mm256_permutevar8x32_epi32(bytes, order);
    Int8Block& to = rounded[b];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.values), packed);
    // Sums of four, then those of each half of 128 bits.
    __m256i sums =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), packed), _mm256_set1_epi16(1));
    sums = _mm256_hadd_epi32(sums, sums);
    sums = _mm256_hadd_epi32(sums, sums);
    to.sums[0] = _mm256_extract_epi32(sums, 0);
    to.sums[1] = _mm256_extract_epi32(sums, 4);
    to.scale = size / 127.0f + not_finite;
    to.scaled_sum = to.scale * static_cast<float>(to.sums[0] + to.sums[1]);
  }
}

}  // namespace zipage::cpu
