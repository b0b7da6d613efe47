// Packed weights times 8-bit inputs with AVX2.
#include "backend/cpu/linear/linear_int8_body.h"
#include "backend/cpu/linear/quant_scales_avx2.h"

namespace zipage::cpu {
namespace {

struct Avx2 {
  using Float = __m256;
  static constexpr int kVectors = 2;  // a panel
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 4;

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
  template <PanelFormat kFormat>
  static constexpr bool has_offset() {
    return kFormat != PanelFormat::kQ8 && kFormat != PanelFormat::kQ6K;
  }
  template <PanelFormat kFormat>
  static ZIPAGE_ALWAYS_INLINE inline QuantScales scales(const std::byte* group,
                                                        int64_t block,
                                                        int part,
                                                        int half) {
    return quant_scales<kFormat>(group, block, part == kWhole ? 0 : part, half);
  }

  static ZIPAGE_ALWAYS_INLINE inline __m256i four_inputs(const Int8Block& x, int64_t k) {
    int32_t four;
    __builtin_memcpy(&four, x.values + k, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static ZIPAGE_ALWAYS_INLINE inline __m256i load_half(const std::byte* line, int half) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + half);
  }
  // Bits [kFrom, ...) of every byte moved to bit 4 and up, those of `mask` kept.
  template <int kFrom>
  static ZIPAGE_ALWAYS_INLINE inline __m256i to_bit_4(__m256i line, char mask) {
    const __m256i moved = kFrom > 4   ? _mm256_srli_epi16(line, kFrom > 4 ? kFrom - 4 : 0)
                          : kFrom < 4 ? _mm256_slli_epi16(line, kFrom < 4 ? 4 - kFrom : 0)
                                      : line;
    return _mm256_and_si256(moved, _mm256_set1_epi8(mask));
  }
  // Integers without a sign of inputs 4 j + i.
  template <PanelFormat kFormat, int j>
  static ZIPAGE_ALWAYS_INLINE inline __m256i line_of(const std::byte* integers, int half) {
    constexpr int kBits = quant_layout(kFormat).bits;
    const __m256i line = load_half(integers + 64 * (j % 4), half);
    __m256i q = _mm256_and_si256(j < 4 ? line : _mm256_srli_epi16(line, 4), _mm256_set1_epi8(0xf));
    if constexpr (kBits == 5) {
      q = _mm256_or_si256(q, to_bit_4<j>(load_half(integers + 256, half), 0x10));
    }
    if constexpr (kBits == 6) {
      const __m256i upper = load_half(integers + 256 + 64 * (j / 4), half);
      q = _mm256_or_si256(q, to_bit_4<2 * (j % 4)>(upper, 0x30));
    }
    return q;
  }

  // sum += pairs of products. Written out: the compiler would add them as a tree, whose leaves then
  // all wait on the stack.
  static ZIPAGE_ALWAYS_INLINE inline void add_products(__m256i size, __m256i in, __m256i& sum) {
    __m256i product;
    __asm__(
        "vpmaddubsw %[in], %[size], %[product]\n\t"
        "vpaddw %[product], %[sum], %[sum]"
        : [product] "=&x"(product), [sum] "+x"(sum)
        : [in] "x"(in), [size] "x"(size));
  }
  // sum += fours of products of signed numbers. The product takes one unsigned operand: |w|, with
  // w's sign moved to the input.
  static ZIPAGE_ALWAYS_INLINE inline void add_signed_products(
      __m256i w, __m256i size, __m256i in, __m256i ones, __m256i& sum) {
    __m256i product;
    __asm__(
        "vpsignb %[w], %[in], %[product]\n\t"
        "vpmaddubsw %[product], %[size], %[product]\n\t"
        "vpmaddwd %[ones], %[product], %[product]\n\t"
        "vpaddd %[product], %[sum], %[sum]"
        : [product] "=&x"(product), [sum] "+x"(sum)
        : [w] "x"(w), [size] "x"(size), [in] "x"(in), [ones] "x"(ones));
  }

  template <PanelFormat kFormat, int kPart, int R>
  static ZIPAGE_ALWAYS_INLINE inline void dots(const std::byte* integers,
                                               const Int8Block* x,
                                               int64_t x_stride,
                                               Float (&dot)[R][2]) {
    constexpr int kBits = quant_layout(kFormat).bits;
    constexpr int kLines = kPart == kWhole ? 8 : 4;
    // Pairs of products that a 16-bit lane can add: each is at most 2 * 127 times the largest
    // integer, 63, 31 or 15.
    constexpr int kFit = kBits == 6 ? 2 : kBits == 5 ? 4 : 8;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i narrow[R][2], sum[R][2];
    if constexpr (kBits == 8) {
      unroll<R * 2>([&](auto i)
                        ZIPAGE_ALWAYS_INLINE { sum[i / 2][i % 2] = _mm256_setzero_si256(); });
    }
    unroll<kLines>([&](auto t) ZIPAGE_ALWAYS_INLINE {
      constexpr int j = line_at(kFormat, kPart, t);
      __m256i line[2], size[2];
      unroll<2>([&](auto h) ZIPAGE_ALWAYS_INLINE {
        if constexpr (kBits == 8) {
          line[h] = load_half(integers + 64 * j, h);
          size[h] = _mm256_abs_epi8(line[h]);
        } else {
          size[h] = line_of<kFormat, j>(integers, h);
        }
      });
      unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
        const __m256i in = four_inputs(x[r * x_stride], 4 * j);
        unroll<2>([&](auto h) ZIPAGE_ALWAYS_INLINE {
          if constexpr (kBits == 8) {
            add_signed_products(line[h], size[h], in, ones, sum[r][h]);
          } else {
            if constexpr (t % kFit == 0) {
              narrow[r][h] = _mm256_maddubs_epi16(size[h], in);
            } else {
              add_products(size[h], in, narrow[r][h]);
            }
            if constexpr (t % kFit == kFit - 1) {
              const __m256i wide = _mm256_madd_epi16(narrow[r][h], ones);
              sum[r][h] = t < kFit ? wide : _mm256_add_epi32(sum[r][h], wide);
            }
          }
        });
      });
    });
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
      unroll<2>([&](auto h) ZIPAGE_ALWAYS_INLINE {
        if constexpr (kFormat == PanelFormat::kQ6K) {
          const __m256i inputs = _mm256_set1_epi32(x[r * x_stride].sums[kPart]);
          sum[r][h] = _mm256_sub_epi32(sum[r][h], _mm256_slli_epi32(inputs, 5));
        }
        dot[r][h] = _mm256_cvtepi32_ps(sum[r][h]);
      });
    });
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
