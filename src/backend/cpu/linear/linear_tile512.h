// Tiles of sums in 512-bit registers, for the kernels of AVX-512. Internal to each file that
// includes it. Weights give multiply(sum, panel, i, x): adds to 16 outputs' sums the products of
// element i of the step with x, one element of x in every lane.
#pragma once

#include "backend/cpu/linear/linear_body.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

template <typename W, int R, int P>
void run_tile(const TileArgs& a) {
  constexpr int kElements = W::kStep / W::kInputsPerX;  // of x in a step
  __m512 sum[R][P];
  unroll<R * P>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / P, p = i % P;
    sum[r][p] = a.start == nullptr ? _mm512_setzero_ps()
                                   : _mm512_loadu_ps(a.start + r * a.start_stride + kPanel * p);
  });
  const std::byte* panel = a.panel;
  const float* x = a.x;
  const int64_t x_stride = a.x_stride, panel_bytes = a.panel_bytes;
  const auto multiply = [&](auto i) ZIPAGE_ALWAYS_INLINE {  // element i of the step
    typename W::Vector w[P];
    unroll<P>([&](auto p) ZIPAGE_ALWAYS_INLINE { w[p] = W::get(panel + p * panel_bytes, i); });
    unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
      const __m512 wide = _mm512_set1_ps(x[r * x_stride + i]);
      unroll<P>([&](auto p)
                    ZIPAGE_ALWAYS_INLINE { sum[r][p] = W::multiply_add(wide, w[p], sum[r][p]); });
    });
  };
  const auto step = [&](int64_t ahead) ZIPAGE_ALWAYS_INLINE {
    unroll<P>([&](auto p) ZIPAGE_ALWAYS_INLINE {
      _mm_prefetch(reinterpret_cast<const char*>(panel + p * panel_bytes + ahead), _MM_HINT_T0);
    });
    unroll<kElements>(multiply);
    panel += W::kStepBytes;
    x += kElements;
  };
  const int64_t steps = a.count / W::kStep;
  int64_t s = 0;
  for (; s < a.near_step; ++s) step(a.ahead);
  for (; s < steps; ++s) step(a.ahead_near);
  if (W::kStep == 2 && a.count % 2 != 0) unroll<1>(multiply);
  unroll<R * P>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / P, p = i % P;
    _mm512_storeu_ps(a.out + r * a.out_stride + kPanel * p, sum[r][p]);
  });
}

// At least 8 chains of sums wherever there are enough panels, at most 24 of the 32 registers.
template <typename W>
struct Kernel {
  using Weights = W;
  static constexpr int64_t kInputsPerX = W::kInputsPerX;
  static constexpr int64_t kMaxTileRows = 12;

  static int64_t panels_of(int64_t rows) { return rows == 1 ? 8 : rows < 4 ? 4 : 2; }

  template <int R>
  static void run_panels(const TileArgs& a, int64_t num_panels) {
    switch (num_panels) {
      case 1:
        return cpu::run_tile<W, R, 1>(a);
      case 2:
        return cpu::run_tile<W, R, 2>(a);
      default:
        break;
    }
    if constexpr (R < 4) {
      switch (num_panels) {
        case 3:
          return cpu::run_tile<W, R, 3>(a);
        case 4:
          return cpu::run_tile<W, R, 4>(a);
        default:
          break;
      }
    }
    if constexpr (R == 1) {
      switch (num_panels) {
        case 5:
          return cpu::run_tile<W, R, 5>(a);
        case 6:
          return cpu::run_tile<W, R, 6>(a);
        case 7:
          return cpu::run_tile<W, R, 7>(a);
        case 8:
          return cpu::run_tile<W, R, 8>(a);
        default:
          break;
      }
    }
    __builtin_unreachable();
  }

  static void run_tile(const TileArgs& a, int64_t rows, int64_t num_panels) {
    switch (rows) {
      case 1:
        return run_panels<1>(a, num_panels);
      case 2:
        return run_panels<2>(a, num_panels);
      case 3:
        return run_panels<3>(a, num_panels);
      case 4:
        return run_panels<4>(a, num_panels);
      case 5:
        return run_panels<5>(a, num_panels);
      case 6:
        return run_panels<6>(a, num_panels);
      case 7:
        return run_panels<7>(a, num_panels);
      case 8:
        return run_panels<8>(a, num_panels);
      case 9:
        return run_panels<9>(a, num_panels);
      case 10:
        return run_panels<10>(a, num_panels);
      case 11:
        return run_panels<11>(a, num_panels);
      case 12:
        return run_panels<12>(a, num_panels);
      default:
        __builtin_unreachable();
    }
  }
};

}  // namespace
}  // namespace zipage::cpu
