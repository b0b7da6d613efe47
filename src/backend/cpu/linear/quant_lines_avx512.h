// Panels of packed weights in vectors of 16 outputs. Internal to each file that includes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/panel_format.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

// weight = d q + c of line512's q, in kQ6K of q - 32, which has no c as kQ8.
struct Scales512 {
  __m512 d, c;
};
constexpr bool has_offset(PanelFormat format) {
  return format != PanelFormat::kQ8 && format != PanelFormat::kQ6K;
}

ZIPAGE_ALWAYS_INLINE inline __m512 sixteen_f16(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
ZIPAGE_ALWAYS_INLINE inline __m128i sixteen_bytes(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Of a group's block; `part`: of kQ6K, the half of the block's inputs.
template <PanelFormat kFormat>
ZIPAGE_ALWAYS_INLINE inline Scales512 scales512(const std::byte* group, int64_t block, int part) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kBlockScaleBytes = kLayout.block_scale_bytes();
  Scales512 s = {sixteen_f16(group), _mm512_setzero_ps()};
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
    s.c = _mm512_sub_ps(_mm512_setzero_ps(),
                        _mm512_mul_ps(sixteen_f16(group + 32), _mm512_cvtepi32_ps(minimum)));
  } else if constexpr (kLayout.minima) {
    s.c = sixteen_f16(group + 32);
  } else if constexpr (kFormat != PanelFormat::kQ8) {
    s.c = _mm512_mul_ps(s.d, _mm512_set1_ps(kLayout.bits == 4 ? -8.0f : -16.0f));
  }
  return s;
}

// Bits [kFrom, ...) of every byte moved to bit 4 and up, those of `mask` kept.
template <int kFrom>
ZIPAGE_ALWAYS_INLINE inline __m512i to_bit_4(__m512i line, char mask) {
  const __m512i moved = kFrom > 4   ? _mm512_srli_epi16(line, kFrom > 4 ? kFrom - 4 : 0)
                        : kFrom < 4 ? _mm512_slli_epi16(line, kFrom < 4 ? 4 - kFrom : 0)
                                    : line;
  return _mm512_and_si512(moved, _mm512_set1_epi8(mask));
}

// Integers without a sign of inputs 4 j + i of a block; not of kQ8, whose lines lie as they are.
template <PanelFormat kFormat, int j>
ZIPAGE_ALWAYS_INLINE inline __m512i line512(const std::byte* integers) {
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

}  // namespace
}  // namespace zipage::cpu
