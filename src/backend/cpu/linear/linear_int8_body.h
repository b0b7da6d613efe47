// Packed weights times inputs rounded to 8 bits, for the instruction sets that multiply bytes.
// Internal to each file that includes it. Inputs come as blocks of 32 with one scale, as the
// weights do: the products of a block (kQ6K: of half a block) are added as integers, exactly, and
// the blocks in f32 in ascending order, so that a row's result does not depend on the rows beside
// it.
//
// An instruction set V gives: kVectors a panel, kMaxRows of a tile (4 or 8), Float,
// scales<format>(group, block, part, vector), and dots<format, part, R>(integers, inputs, dots):
// integer sums of R rows as floats, of inputs [16 part, 16 part + 16) or (part kWhole) of all 32;
// with fma, load, store ...
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int kWhole = -1;

// Line [0, 8) of input lines (4 inputs each) at step t of `part`. The two halves of a line of
// nibbles follow each other where one sum takes them all.
constexpr int line_at(PanelFormat format, int part, int t) {
  if (part != kWhole) return 4 * part + t;
  return quant_layout(format).bits == 4 ? t / 2 + t % 2 * 4 : t;
}

// R rows against P panels. weight = d q + c; sum += d (scale dot) + c (scale sum of the inputs).
template <typename V, PanelFormat kFormat, int R, int P>
void multiply_rows(const LinearTask& task, int64_t p, const Int8Block* x, bool first, float* out) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kGroupInputs = kLayout.group_inputs();
  constexpr int64_t kGroupBytes = kLayout.group_bytes(), kScaleBytes = kLayout.scale_bytes();
  constexpr int64_t kIntegerBytes = kLayout.integer_bytes();
  constexpr int64_t kShare = kGroupBytes / kLayout.num_blocks;  // of a block, for fetching ahead
  typename V::Float sum[R][P * V::kVectors];
  unroll<R * P * V::kVectors>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * V::kVectors), v = i % (P * V::kVectors);
    sum[r][v] = task.bias == nullptr ? V::zero() : V::load(task.bias + p * kPanel + v * V::kLanes);
  });
  const int64_t x_stride = task.in_features / kQuantBlock;
  const std::byte* group = task.panels + p * task.panel_bytes;
  // What to fetch: for one row a little ahead, near the end the begin of the next group of panels;
  // for several, which take their time, the next panel.
  constexpr int64_t kAhead = kPrefetchBytes / P;
  const std::byte* near = group + task.panel_bytes - kAhead;
  const std::byte* const end = group + task.in_features / kGroupInputs * kGroupBytes;
  for (; group < end; group += kGroupBytes) {
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, ++x) {
      int64_t ahead = task.panel_bytes;
      if constexpr (R == 1)
        ahead = kAhead + (group + b * kShare < near ? 0 : (P - 1) * task.panel_bytes);
      unroll<P>([&](auto q) ZIPAGE_ALWAYS_INLINE {
        const std::byte* at = group + q * task.panel_bytes;
        if (first) {
          const std::byte* from = at + ahead + b * kShare;
          for (int64_t byte = 0; byte < kShare; byte += 64)
            _mm_prefetch(reinterpret_cast<const char*>(from + byte), _MM_HINT_T0);
        }
        const std::byte* integers = at + kScaleBytes + b * kIntegerBytes;
        const auto add = [&](auto part) ZIPAGE_ALWAYS_INLINE {
          typename V::Float dot[R][V::kVectors];
          V::template dots<kFormat, part, R>(integers, x, x_stride, dot);
          unroll<V::kVectors>([&](auto h) ZIPAGE_ALWAYS_INLINE {
            const auto s = V::template scales<kFormat>(at, b, part, h);
            unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
              constexpr int v = q * V::kVectors + h;
              const Int8Block& in = x[r * x_stride];
              sum[r][v] = V::fma(s.d, V::multiply(dot[r][h], V::splat(in.scale)), sum[r][v]);
              if constexpr (V::template has_offset<kFormat>())
                sum[r][v] = V::fma(s.c, V::splat(in.scaled_sum), sum[r][v]);
            });
          });
        };
        if constexpr (kFormat == PanelFormat::kQ6K) {
          add(std::integral_constant<int, 0>{});
          add(std::integral_constant<int, 1>{});
        } else {
          add(std::integral_constant<int, kWhole>{});
        }
      });
    }
  }
  unroll<R * P * V::kVectors>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * V::kVectors), v = i % (P * V::kVectors);
    V::store(out + r * P * kPanel + v * V::kLanes, sum[r][v]);
  });
}

template <typename V, PanelFormat kFormat, int R, int P>
void run_tile(const LinearTask& task, int64_t p, int64_t row) {
  alignas(64) float sums[R * P * kPanel];
  const auto* x =
      reinterpret_cast<const Int8Block*>(task.x) + row * (task.in_features / kQuantBlock);
  multiply_rows<V, kFormat, R, P>(task, p, x, row == 0, sums);
  const int64_t first = p * kPanel;
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t n = 0; n < P * kPanel && first + n < task.num_outputs; ++n) {
      task.out[(row + r) * task.out_stride + first + n] = sums[r * P * kPanel + n];
    }
  }
}

template <typename V, PanelFormat kFormat>
void run_int8(const LinearTask& task) {
  int64_t p = task.panel_begin;
  if (task.num_rows == 1) {
    for (; p + 2 <= task.panel_end; p += 2) run_tile<V, kFormat, 1, 2>(task, p, 0);
  }
  for (; p < task.panel_end; ++p) {
    int64_t row = 0;
    if constexpr (V::kMaxRows == 8) {
      for (; row + 8 <= task.num_rows; row += 8) run_tile<V, kFormat, 8, 1>(task, p, row);
    }
    for (; row + 4 <= task.num_rows; row += 4) run_tile<V, kFormat, 4, 1>(task, p, row);
    switch (task.num_rows - row) {
      case 3:
        run_tile<V, kFormat, 3, 1>(task, p, row);
        break;
      case 2:
        run_tile<V, kFormat, 2, 1>(task, p, row);
        break;
      case 1:
        run_tile<V, kFormat, 1, 1>(task, p, row);
        break;
      default:
        break;
    }
  }
}

template <typename V>
LinearKernel int8_kernel(PanelFormat format) {
  static constexpr LinearKernel kOf[kNumQuantFormats] = {
      run_int8<V, PanelFormat::kQ8>,    run_int8<V, PanelFormat::kQ4>,
      run_int8<V, PanelFormat::kQ4Min>, run_int8<V, PanelFormat::kQ5>,
      run_int8<V, PanelFormat::kQ5Min>, run_int8<V, PanelFormat::kQ4K>,
      run_int8<V, PanelFormat::kQ5K>,   run_int8<V, PanelFormat::kQ6K>};
  return kOf[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
}

}  // namespace
}  // namespace zipage::cpu
