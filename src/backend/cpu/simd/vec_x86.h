// What the vectors of AVX2 and of AVX-512 share: halves of 128 and 256 bits, and squares of eight.
// Included by vec_avx2.h and vec_avx512.h alone.
#pragma once

#include "backend/cpu/simd/elements.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

ZIPAGE_INLINE __m128 fold256(__m256 a) {
  return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}
// fold256(a) | fold256(b)
ZIPAGE_INLINE __m256 fold256_pair(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_insertf128_ps(a, _mm256_castps256_ps128(b), 1),
                       _mm256_permute2f128_ps(a, b, 0x31));
}

ZIPAGE_INLINE __m256 load8(const F32* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
ZIPAGE_INLINE __m256 load8(const F16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
ZIPAGE_INLINE __m256 load8(const BF16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

constexpr int kSquare = 8;
// to[j * to_stride + c] = scale * from[c, j], rows of `from` lying from_bytes apart.
template <typename T>
ZIPAGE_INLINE void transpose8(
    const std::byte* from, int64_t from_bytes, __m256 scale, float* to, int64_t to_stride) {
  __m256 row[8], pair[8], quad[8];
  ZIPAGE_UNROLL
  for (int c = 0; c < 8; ++c) {
    row[c] = _mm256_mul_ps(load8(reinterpret_cast<const T*>(from + c * from_bytes)), scale);
  }
  ZIPAGE_UNROLL
  for (int c = 0; c < 8; c += 2) {
    pair[c] = _mm256_unpacklo_ps(row[c], row[c + 1]);
    pair[c + 1] = _mm256_unpackhi_ps(row[c], row[c + 1]);
  }
  ZIPAGE_UNROLL
  for (int c = 0; c < 8; c += 4) {
    quad[c] = _mm256_shuffle_ps(pair[c], pair[c + 2], 0x44);
    quad[c + 1] = _mm256_shuffle_ps(pair[c], pair[c + 2], 0xee);
    quad[c + 2] = _mm256_shuffle_ps(pair[c + 1], pair[c + 3], 0x44);
    quad[c + 3] = _mm256_shuffle_ps(pair[c + 1], pair[c + 3], 0xee);
  }
  ZIPAGE_UNROLL
  for (int j = 0; j < 4; ++j) {
    _mm256_storeu_ps(to + j * to_stride, _mm256_permute2f128_ps(quad[j], quad[j + 4], 0x20));
    _mm256_storeu_ps(to + (j + 4) * to_stride, _mm256_permute2f128_ps(quad[j], quad[j + 4], 0x31));
  }
}

}  // namespace
}  // namespace zipage::cpu
