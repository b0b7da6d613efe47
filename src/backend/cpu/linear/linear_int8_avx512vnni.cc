// Packed weights times 8-bit inputs with AVX-512 VNNI.
#include "backend/cpu/linear/linear_int8_body.h"
#include "backend/cpu/linear/quant_lines_avx512.h"

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
  template <PanelFormat kFormat>
  static constexpr bool has_offset() {
    return cpu::has_offset(kFormat);
  }
  template <PanelFormat kFormat>
  static ZIPAGE_ALWAYS_INLINE inline Scales512 scales(const std::byte* group,
                                                      int64_t block,
                                                      int part,
                                                      int) {
    return scales512<kFormat>(group, block, part);
  }
  static ZIPAGE_ALWAYS_INLINE inline __m512i four_inputs(const Int8Block& x, int64_t k) {
    int32_t four;
    __builtin_memcpy(&four, x.values + k, sizeof four);
    return _mm512_set1_epi32(four);
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
        q = line512<kFormat, j>(integers);
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
