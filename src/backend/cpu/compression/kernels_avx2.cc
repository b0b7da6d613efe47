#include <immintrin.h>

#include "backend/cpu/compression/kernels.h"

namespace zipage::cpu {
namespace {

using V = __m256;
using Mask = __m256;
constexpr int kLanes = 8;
constexpr int kRows = 6;
constexpr int kSquare = 8;

inline V load_v(const float* at) { return _mm256_loadu_ps(at); }
inline void store_v(float* at, V v) { _mm256_storeu_ps(at, v); }
inline V set_v(float x) { return _mm256_set1_ps(x); }
inline V fma_v(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V max_v(V a, V b) { return _mm256_max_ps(a, b); }
inline float sum_v(V v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float top_v(V v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline V exp2_scale(V p, V t) {
  const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
}
inline Mask greater(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
inline V set_where(Mask m, V a, V b) { return _mm256_blendv_ps(b, a, m); }
inline V clear_where(Mask m, V v) { return _mm256_andnot_ps(m, v); }

#include "backend/cpu/compression/transpose_avx.inc"

template <DType dtype>
inline V load_half_v(const uint16_t* at) {
  return load8<dtype>(reinterpret_cast<const std::byte*>(at));
}

#include "backend/cpu/compression/kernels_body.inc"

}  // namespace

const CompressionKernels kCompressionAvx2 = kTable;

}  // namespace zipage::cpu
