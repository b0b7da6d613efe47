// GEMM of packed weights with inputs rounded to 8 bits. Internal to each file that includes it: one
// for each way to multiply bytes (AVX2, AVX-512 VNNI). AMX-INT8 has loops of its own.
//
// Inputs come as blocks of 32 with one scale, as the weights do. The products of a block (kQ6K: of
// half a block) are added as integers, exactly, and the blocks in f32 in ascending order, so that a
// row's result does not depend on the rows beside it.
//
// A file gives the instruction set V: kMaxRows, the rows of a tile (4 or 8), and
// dots<format>(integers, part, x, x_stride, dots), the integer sums of R rows as floats, of inputs
// [16 part, 16 part + 16) in kQ6K and of all 32 otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/linear/quant_vec.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kPrefetchBytes = 4096;

// Line [0, 8) of input lines (4 inputs each) at step t of `part`. The two halves of a line of
// nibbles follow each other where one sum takes them all.
constexpr int line_at(PanelFormat format, int part, int t) {
  if (num_parts(format) == 2) return 4 * part + t;
  return quant_layout(format).bits == 4 ? t / 2 + t % 2 * 4 : t;
}

ZIPAGE_INLINE int32_t four_inputs(const Int8Block& x, int j) {
  int32_t four;
  __builtin_memcpy(&four, x.values + 4 * j, sizeof four);
  return four;
}

// sums += a part of a block of one panel: d (scale dot) + c (scale sum of the inputs).
template <typename V, PanelFormat kFormat, int R>
ZIPAGE_INLINE void add_part(const std::byte* group,
                            int64_t block,
                            int part,
                            const Int8Block* x,
                            int64_t x_stride,
                            Vec (&sums)[R][kPanelVectors]) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  const std::byte* integers = group + kLayout.scale_bytes() + block * kLayout.integer_bytes();
  Vec dot[R][kPanelVectors];
  V::template dots<kFormat>(integers, part, x, x_stride, dot);
  ZIPAGE_UNROLL
  for (int v = 0; v < kPanelVectors; ++v) {
    const QuantScales s = quant_scales<kFormat>(group, block, part, v);
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Int8Block& in = x[r * x_stride];
      sums[r][v] = fma(s.d, dot[r][v] * splat(in.scale), sums[r][v]);
      if constexpr (!has_signed_dots(kFormat)) {
        sums[r][v] = fma(s.c, splat(in.scaled_sum), sums[r][v]);
      }
    }
  }
}

// R rows against P panels.
template <typename V, PanelFormat kFormat, int R, int P>
void multiply_rows(const LinearTask& task, int64_t p, const Int8Block* x, bool first, float* out) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kGroupBytes = kLayout.group_bytes();
  constexpr int64_t kShare = kGroupBytes / kLayout.num_blocks;  // of a block, for fetching ahead
  Vec sums[P][R][kPanelVectors];
  ZIPAGE_UNROLL
  for (int q = 0; q < P; ++q) {
    ZIPAGE_UNROLL
    for (int i = 0; i < R * kPanelVectors; ++i) {
      const int v = i % kPanelVectors;
      sums[q][i / kPanelVectors][v] =
          task.bias == nullptr ? zero() : load(task.bias + (p + q) * kPanel + v * kWidth);
    }
  }
  const int64_t x_stride = task.in_features / kQuantBlock;
  const std::byte* group = task.panels + p * task.panel_bytes;
  // What to fetch: for one row a little ahead, near the end the begin of the next group of panels;
  // for several, which take their time, the next panel.
  constexpr int64_t kAhead = kPrefetchBytes / P;
  const std::byte* near = group + task.panel_bytes - kAhead;
  const std::byte* const end = group + task.in_features / kLayout.group_inputs() * kGroupBytes;
  for (; group < end; group += kGroupBytes) {
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, ++x) {
      int64_t ahead = task.panel_bytes;
      if constexpr (R == 1)
        ahead = kAhead + (group + b * kShare < near ? 0 : (P - 1) * task.panel_bytes);
      ZIPAGE_UNROLL
      for (int q = 0; q < P; ++q) {
        const std::byte* at = group + q * task.panel_bytes;
        if (first) {
          const std::byte* from = at + ahead + b * kShare;
          for (int64_t byte = 0; byte < kShare; byte += 64) __builtin_prefetch(from + byte, 0, 3);
        }
        add_part<V, kFormat>(at, b, 0, x, x_stride, sums[q]);
        if constexpr (num_parts(kFormat) == 2) {
          add_part<V, kFormat>(at, b, 1, x, x_stride, sums[q]);
        }
      }
    }
  }
  ZIPAGE_UNROLL
  for (int q = 0; q < P; ++q) {
    ZIPAGE_UNROLL
    for (int i = 0; i < R * kPanelVectors; ++i) {
      const int r = i / kPanelVectors, v = i % kPanelVectors;
      store(out + (r * P + q) * kPanel + v * kWidth, sums[q][r][v]);
    }
  }
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
