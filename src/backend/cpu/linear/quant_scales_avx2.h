// The scales of packed weights as f32, 8 outputs at a time. Internal to each file that includes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/panel_format.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

// weight = d q + c; q without a sign, except in kQ8, which has no c.
struct QuantScales {
  __m256 d, c;
};

constexpr bool has_offset(PanelFormat format) { return format != PanelFormat::kQ8; }

ZIPAGE_ALWAYS_INLINE inline __m256 eight_f16(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
ZIPAGE_ALWAYS_INLINE inline __m128i eight_bytes(const std::byte* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}

// Of block `block` of a group, inputs 16 part + i, outputs 8 half + n.
template <PanelFormat kFormat>
ZIPAGE_ALWAYS_INLINE inline QuantScales quant_scales(const std::byte* group,
                                                     int64_t block,
                                                     int part,
                                                     int half) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kHead = kLayout.minima ? 64 : 32;
  constexpr int64_t kBlockScaleBytes = kLayout.block_scale_bytes();
  QuantScales s;
  s.d = eight_f16(group + 16 * half);
  if constexpr (kFormat == PanelFormat::kQ8) {
    s.c = _mm256_setzero_ps();
  } else if constexpr (kFormat == PanelFormat::kQ6K) {
    const std::byte* at = group + kHead + block * kBlockScaleBytes + 16 * part + 8 * half;
    s.d = _mm256_mul_ps(s.d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(at))));
    s.c = _mm256_mul_ps(s.d, _mm256_set1_ps(-32.0f));
  } else if constexpr (kLayout.num_blocks == 8) {
    const std::byte* at = group + kHead + block * kBlockScaleBytes;
    const __m256i low = _mm256_cvtepu8_epi32(eight_bytes(at + 8 * half));
    const __m256i both = _mm256_cvtepu8_epi32(eight_bytes(at + 16));
    const __m256i high = half == 0 ? both : _mm256_srli_epi32(both, 4);
    const __m256i scale =
        _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(0xf)),
                        _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    const __m256i minimum =
        _mm256_or_si256(_mm256_srli_epi32(low, 4),
                        _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(0xc)), 2));
    s.d = _mm256_mul_ps(s.d, _mm256_cvtepi32_ps(scale));
    s.c = _mm256_mul_ps(_mm256_xor_ps(eight_f16(group + 32 + 16 * half), _mm256_set1_ps(-0.0f)),
                        _mm256_cvtepi32_ps(minimum));
  } else if constexpr (kLayout.minima) {
    s.c = eight_f16(group + 32 + 16 * half);
  } else {
    s.c = _mm256_mul_ps(s.d, _mm256_set1_ps(kLayout.bits == 4 ? -8.0f : -16.0f));
  }
  return s;
}

}  // namespace
}  // namespace zipage::cpu
