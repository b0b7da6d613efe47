#include <immintrin.h>

#include "backend/cpu/compression/kernels.h"

// GCC 12 takes the deliberately undefined registers inside its own intrinsics for mistakes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace zipage::cpu {
namespace {

using V = __m512;
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr int kRows = 12;
constexpr int kSquare = 8;

inline V load_v(const float* at) { return _mm512_loadu_ps(at); }
inline void store_v(float* at, V v) { _mm512_storeu_ps(at, v); }
inline V set_v(float x) { return _mm512_set1_ps(x); }
inline V fma_v(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V max_v(V a, V b) { return _mm512_max_ps(a, b); }
inline float sum_v(V v) { return _mm512_reduce_add_ps(v); }
inline float top_v(V v) { return _mm512_reduce_max_ps(v); }
inline V exp2_scale(V p, V t) {
  const __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), shift));
}
inline Mask greater(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
inline V set_where(Mask m, V a, V b) { return _mm512_mask_mov_ps(b, m, a); }
inline V clear_where(Mask m, V v) { return _mm512_maskz_mov_ps(static_cast<Mask>(~m), v); }
#include "backend/cpu/compression/transpose_avx.inc"

template <DType dtype>
inline V load_half_v(const uint16_t* at) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if constexpr (dtype == DType::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

#include "backend/cpu/compression/kernels_body.inc"

}  // namespace

const CompressionKernels kCompressionAvx512 = kTable;

}  // namespace zipage::cpu
