// Vectors of four floats as the compiler makes them of any CPU's instructions; products and sums
// are rounded apart.
#include "backend/cpu/compression/kernels.h"

namespace zipage::cpu {
namespace {

typedef float V __attribute__((vector_size(16)));
typedef int32_t Mask __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRows = 4;
constexpr int kSquare = 4;

inline V load_v(const float* at) {
  V v;
  __builtin_memcpy(&v, at, sizeof v);
  return v;
}
inline void store_v(float* at, V v) { __builtin_memcpy(at, &v, sizeof v); }
inline V set_v(float x) { return V{x, x, x, x}; }
inline V fma_v(V a, V b, V c) { return a * b + c; }
inline V max_v(V a, V b) { return a > b ? a : b; }
inline float sum_v(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float top_v(V v) {
  const float a = v[0] > v[1] ? v[0] : v[1];
  const float b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}
inline V exp2_scale(V p, V t) {
  Mask bits, shift;
  __builtin_memcpy(&bits, &p, sizeof bits);
  __builtin_memcpy(&shift, &t, sizeof shift);
  bits += shift << 23;
  __builtin_memcpy(&p, &bits, sizeof bits);
  return p;
}
template <DType dtype>
inline V load_half_v(const uint16_t* at) {
  V v;
  for (int i = 0; i < kLanes; ++i) {
    v[i] = dtype == DType::kBF16 ? bf16_to_f32(at[i]) : f16_to_f32(at[i]);
  }
  return v;
}
inline Mask greater(V a, V b) { return a > b; }
inline Mask both(Mask a, Mask b) { return a & b; }
inline V set_where(Mask m, V a, V b) { return m ? a : b; }
inline V clear_where(Mask m, V v) { return m ? set_v(0) : v; }

// dst[j * kTile + c] = scale * src[c, j] of a square; rows of src are `stride` bytes apart.
template <DType dtype>
inline void transpose(const std::byte* src, int64_t stride, float scale, float* dst) {
  V row[kSquare];
  for (int c = 0; c < kSquare; ++c) {
    const std::byte* at = src + c * stride;
    if constexpr (dtype == DType::kF32) {
      row[c] = load_v(reinterpret_cast<const float*>(at));
    } else {
      row[c] = load_half_v<dtype>(reinterpret_cast<const uint16_t*>(at));
    }
  }
  for (int j = 0; j < kSquare; ++j) {
    store_v(dst + j * kTile, V{row[0][j], row[1][j], row[2][j], row[3][j]} * set_v(scale));
  }
}

#include "backend/cpu/compression/kernels_body.inc"

}  // namespace

const CompressionKernels kCompressionPortable = kTable;

}  // namespace zipage::cpu
