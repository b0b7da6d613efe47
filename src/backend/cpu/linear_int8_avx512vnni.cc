// Packed weights times 8-bit inputs with AVX-512 VNNI.
#include "backend/cpu/linear_int8_body.h"

namespace zipage::cpu {
namespace {

struct Vnni {
  using Float = __m512;
  static constexpr int kVectors = 1;  // a panel
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = 8;  // chains of sums: a product takes several cycles

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
  struct Scales {
    Float d, c;
  };
  template <PanelFormat kFormat>
  static constexpr bool has_offset() {
    return kFormat != PanelFormat::kQ8 && kFormat != PanelFormat::kQ6K;
  }
  static ZIPAGE_ALWAYS_INLINE inline Float sixteen_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static ZIPAGE_ALWAYS_INLINE inline __m128i sixteen_bytes(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }

  template <PanelFormat kFormat>
  static ZIPAGE_ALWAYS_INLINE inline Scales scales(const std::byte* group,
                                                   int64_t block,
                                                   int part,
                                                   int) {
    constexpr QuantLayout kLayout = quant_layout(kFormat);
    constexpr int64_t kBlockScaleBytes = kLayout.block_scale_bytes();
    Scales s = {sixteen_f16(group), zero()};
    if constexpr (kFormat == PanelFormat::kQ6K) {
      const std::byte* at = group + 32 + block * kBlockScaleBytes + 16 * part;
      s.d = _mm512_mul_ps(s.d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen_bytes(at))));
    } else if constexpr (kLayout.num_blocks == 8) {
      const std::byte* at = group + 64 + block * kBlockScaleBytes;
      int64_t upper;
      __builtin_memcpy(&upper, at + 16, sizeof upper);
      const __m512i low = _mm512_cvtepu8_epi32(sixteen_bytes(at));
      const __m512i high =  // of outputs 8 and up: the upper halves of bytes
          _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi64x(upper)),
                            _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4));
      const __m512i scale =
          _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(0xf)),
                          _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(3)), 4));
      const __m512i minimum =
          _mm512_or_si512(_mm512_srli_epi32(low, 4),
                          _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(0xc)), 2));
      s.d = _mm512_mul_ps(s.d, _mm512_cvtepi32_ps(scale));
      s.c = _mm512_sub_ps(zero(),
                          _mm512_mul_ps(sixteen_f16(group + 32), _mm512_cvtepi32_ps(minimum)));
    } else if constexpr (kLayout.minima) {
      s.c = sixteen_f16(group + 32);
    } else if constexpr (kFormat != PanelFormat::kQ8) {
      s.c = _mm512_mul_ps(s.d, _mm512_set1_ps(kLayout.bits == 4 ? -8.0f : -16.0f));
    }
    return s;
  }

  static ZIPAGE_ALWAYS_INLINE inline __m512i four_inputs(const Int8Block& x, int64_t k) {
    int32_t four;
    __builtin_memcpy(&four, x.values + k, sizeof four);
    return _mm512_set1_epi32(four);
  }
  // Bits [kFrom, ...) of every byte moved to bit 4 and up, those of `mask` kept.
  template <int kFrom>
  static ZIPAGE_ALWAYS_INLINE inline __m512i to_bit_4(__m512i line, char mask) {
    const __m512i moved = kFrom > 4   ? _mm512_srli_epi16(line, kFrom > 4 ? kFrom - 4 : 0)
                          : kFrom < 4 ? _mm512_slli_epi16(line, kFrom < 4 ? 4 - kFrom : 0)
                                      : line;
    return _mm512_and_si512(moved, _mm512_set1_epi8(mask));
  }
  // Integers without a sign of inputs 4 j + i.
  template <PanelFormat kFormat, int j>
  static ZIPAGE_ALWAYS_INLINE inline __m512i line_of(const std::byte* integers) {
    constexpr int kBits = quant_layout(kFormat).bits;
    const __m512i line = _mm512_loadu_si512(integers + 64 * (j % 4));
    __m512i q = _mm512_and_si512(j < 4 ? line : _mm512_srli_epi16(line, 4), _mm512_set1_epi8(0xf));
    if constexpr (kBits == 5) {
      q = _mm512_or_si512(q, to_bit_4<j>(_mm512_loadu_si512(integers + 256), 0x10));
    }
    if constexpr (kBits == 6) {
      const __m512i upper = _mm512_loadu_si512(integers + 256 + 64 * (j / 4));
      q = _mm512_or_si512(q, to_bit_4<2 * (j % 4)>(upper, 0x30));
    }
    return q;
  }

  template <PanelFormat kFormat, int kPart, int R>
  static ZIPAGE_ALWAYS_INLINE inline void dots(const std::byte* integers,
                                               const Int8Block* x,
                                               int64_t x_stride,
                                               Float (&dot)[R][1]) {
    constexpr int kLines = kPart == kWhole ? 8 : 4;
    __m512i sum[R];
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE { sum[r] = _mm512_setzero_si512(); });
    unroll<kLines>([&](auto t) ZIPAGE_ALWAYS_INLINE {
      constexpr int j = line_at(kFormat, kPart, t);
      __m512i q;  // the product takes one unsigned operand
      if constexpr (kFormat == PanelFormat::kQ8) {
        q = _mm512_xor_si512(_mm512_loadu_si512(integers + 64 * j),
                             _mm512_set1_epi8(static_cast<char>(0x80)));  // plus 128
      } else {
        q = line_of<kFormat, j>(integers);
      }
      unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
        sum[r] = _mm512_dpbusd_epi32(sum[r], q, four_inputs(x[r * x_stride], 4 * j));
      });
    });
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
      const Int8Block& in = x[r * x_stride];
      if constexpr (kFormat == PanelFormat::kQ8) {
        const __m512i inputs = _mm512_set1_epi32(in.sums[0] + in.sums[1]);
        sum[r] = _mm512_sub_epi32(sum[r], _mm512_slli_epi32(inputs, 7));
      }
      if constexpr (kFormat == PanelFormat::kQ6K)
        sum[r] = _mm512_sub_epi32(sum[r], _mm512_slli_epi32(_mm512_set1_epi32(in.sums[kPart]), 5));
      dot[r][0] = _mm512_cvtepi32_ps(sum[r]);
    });
  }
};

}  // namespace

LinearKernel linear_int8_avx512vnni(PanelFormat format) { return int8_kernel<Vnni>(format); }

}  // namespace zipage::cpu
