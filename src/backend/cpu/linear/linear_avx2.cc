// Linear kernels for AVX2 with FMA and F16C. An output element is one chain of fused multiply-adds
// in ascending k that starts at its bias: whatever tile it is computed in, the same bits come out.
#include "backend/cpu/linear/linear_body.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

// How a panel stores its weights: get() gives outputs [8 * half, 8 * half + 8) of input i of the
// step at `p`.
struct Bf16 {
  static constexpr int64_t kStep = 2;  // inputs a step
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_ALWAYS_INLINE inline __m256 get(const std::byte* p, int i, int half) {
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + half);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(pair, 16) : _mm256_and_si256(pair, high));
  }
};
struct F16 {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 32;
  static ZIPAGE_ALWAYS_INLINE inline __m256 get(const std::byte* p, int, int half) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + half));
  }
};
struct F32 {
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kStepBytes = 64;
  static ZIPAGE_ALWAYS_INLINE inline __m256 get(const std::byte* p, int, int half) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8 * half);
  }
};

// Sums of R rows and P panels, in registers.
template <typename W, int R, int P>
void run_tile(const TileArgs& a) {
  __m256 sum[R][P][2];
  unroll<R * P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * 2), p = i / 2 % P, h = i % 2;
    sum[r][p][h] = a.start == nullptr
                       ? _mm256_setzero_ps()
                       : _mm256_loadu_ps(a.start + r * a.start_stride + kPanel * p + 8 * h);
  });
  const std::byte* panel = a.panel;
  const float* x = a.x;
  const int64_t x_stride = a.x_stride, panel_bytes = a.panel_bytes;
  const auto multiply = [&](auto i) ZIPAGE_ALWAYS_INLINE {  // input i of the step
    unroll<P>([&](auto p) ZIPAGE_ALWAYS_INLINE {
      const __m256 w0 = W::get(panel + p * panel_bytes, i, 0);
      const __m256 w1 = W::get(panel + p * panel_bytes, i, 1);
      unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
        const float* xr = x + r * x_stride + i;
        if constexpr (R > 1) {
          // As one piece, since all 16 registers are in use: the compiler would load several inputs
          // early and spill sums.
          __m256 sum0 = sum[r][p][0], sum1 = sum[r][p][1], wide;
          __asm__(
              "vbroadcastss %[x], %[wide]\n\t"
              "vfmadd231ps %[w0], %[wide], %[sum0]\n\t"
              "vfmadd231ps %[w1], %[wide], %[sum1]"
              : [sum0] "+x"(sum0), [sum1] "+x"(sum1), [wide] "=&x"(wide)
              : [x] "m"(*xr), [w0] "x"(w0), [w1] "x"(w1));
          sum[r][p][0] = sum0;
          sum[r][p][1] = sum1;
        } else {
          const __m256 wide = _mm256_broadcast_ss(xr);
          sum[r][p][0] = _mm256_fmadd_ps(wide, w0, sum[r][p][0]);
          sum[r][p][1] = _mm256_fmadd_ps(wide, w1, sum[r][p][1]);
        }
      });
    });
  };
  const auto step = [&](int64_t ahead) ZIPAGE_ALWAYS_INLINE {
    unroll<P>([&](auto p) ZIPAGE_ALWAYS_INLINE {
      _mm_prefetch(reinterpret_cast<const char*>(panel + p * panel_bytes + ahead), _MM_HINT_T0);
    });
    unroll<W::kStep>(multiply);
    panel += W::kStepBytes;
    x += W::kStep;
  };
  const int64_t steps = a.count / W::kStep;
  int64_t s = 0;
  for (; s < a.near_step; ++s) step(a.ahead);
  for (; s < steps; ++s) step(a.ahead_near);
  if (W::kStep == 2 && a.count % 2 != 0) unroll<1>(multiply);
  unroll<R * P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * 2), p = i / 2 % P, h = i % 2;
    _mm256_storeu_ps(a.out + r * a.out_stride + kPanel * p + 8 * h, sum[r][p][h]);
  });
}

template <typename W>
struct Kernel {
  using Weights = W;
  static constexpr int64_t kInputsPerX = 1;
  static constexpr int64_t kMaxTileRows = 6;  // 6 x 16 sums fill 12 of 16 registers

  static int64_t panels_of(int64_t rows) { return rows == 1 ? 4 : rows < 4 ? 2 : 1; }

  static void run_tile(const TileArgs& a, int64_t rows, int64_t num_panels) {
    switch (rows * 8 + num_panels) {
      case 1 * 8 + 4:
        return cpu::run_tile<W, 1, 4>(a);
      case 1 * 8 + 3:
        return cpu::run_tile<W, 1, 3>(a);
      case 1 * 8 + 2:
        return cpu::run_tile<W, 1, 2>(a);
      case 1 * 8 + 1:
        return cpu::run_tile<W, 1, 1>(a);
      case 2 * 8 + 2:
        return cpu::run_tile<W, 2, 2>(a);
      case 2 * 8 + 1:
        return cpu::run_tile<W, 2, 1>(a);
      case 3 * 8 + 2:
        return cpu::run_tile<W, 3, 2>(a);
      case 3 * 8 + 1:
        return cpu::run_tile<W, 3, 1>(a);
      case 4 * 8 + 1:
        return cpu::run_tile<W, 4, 1>(a);
      case 5 * 8 + 1:
        return cpu::run_tile<W, 5, 1>(a);
      case 6 * 8 + 1:
        return cpu::run_tile<W, 6, 1>(a);
      default:
        __builtin_unreachable();
    }
  }
};

}  // namespace

void linear_bf16_avx2(const LinearTask& task) { run_linear<Kernel<Bf16>>(task); }
void linear_f16_avx2(const LinearTask& task) { run_linear<Kernel<F16>>(task); }
void linear_f32_avx2(const LinearTask& task) { run_linear<Kernel<F32>>(task); }

}  // namespace zipage::cpu
