// Packed weights times inputs rounded to 8 bits, for the instruction sets that multiply bytes.
// Internal to each file that includes it. Inputs come as blocks of 32 with one scale, as the
// weights do: the products of a block are added as integers, exactly, and the blocks in f32 in
// ascending order, so that a row's result does not depend on the rows beside it.
//
// An instruction set V gives: kVectors a panel, Float, and dot_block<L, R>(panel block, vector,
// inputs, dots): the 32-term integer sums of R rows as floats; with fma, scale, load, store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/unroll.h"
#include "backend/cpu/x86.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kPrefetchBytes = 4096;

template <bool kNibbles, bool kMinima>
struct QuantPanel {  // as in quant_panel.h
  static constexpr bool nibbles = kNibbles;
  static constexpr bool minima = kMinima;
  static constexpr bool has_offset = kNibbles || kMinima;
  static constexpr int64_t header = kMinima ? 64 : 32;
  static constexpr int64_t lines = kNibbles ? 4 : 8;
  static constexpr int64_t block = header + 64 * lines;
};

// R rows against P panels. weight = d q + c; sum += d (scale dot) + c (scale sum of the inputs).
template <typename V, typename L, int R, int P>
void multiply_rows(const LinearTask& task, int64_t p, const Int8Block* x, float* out) {
  typename V::Float sum[R][P * V::kVectors];
  unroll<R * P * V::kVectors>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * V::kVectors), v = i % (P * V::kVectors);
    sum[r][v] = task.bias == nullptr ? V::zero() : V::load(task.bias + p * kPanel + v * V::kLanes);
  });
  const int64_t num_blocks = task.in_features / kInt8Block;
  const std::byte* panel = task.panels + p * task.panel_bytes;
  const int64_t near = num_blocks - kPrefetchBytes / P / L::block;
  const int64_t x_stride = num_blocks;
  for (int64_t b = 0; b < num_blocks; ++b, panel += L::block, ++x) {
    const int64_t ahead = kPrefetchBytes / P + (b < near ? 0 : (P - 1) * task.panel_bytes);
    unroll<P>([&](auto q) ZIPAGE_ALWAYS_INLINE {
      const std::byte* block = panel + q * task.panel_bytes;
      if constexpr (R == 1) {
        for (int64_t byte = 0; byte < L::block; byte += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(block + ahead + byte), _MM_HINT_T0);
        }
      }
      unroll<V::kVectors>([&](auto h) ZIPAGE_ALWAYS_INLINE {
        typename V::Float dot[R];
        V::template dot_block<L, R>(block + L::header, h, x, x_stride, dot);
        const typename V::Float d = V::scale(block, h);
        typename V::Float c = V::zero();
        if constexpr (L::has_offset)
          c = L::minima ? V::scale(block + 32, h) : V::multiply(d, V::splat(-8.0f));
        unroll<R>([&](auto r) ZIPAGE_ALWAYS_INLINE {
          constexpr int v = q * V::kVectors + h;
          const Int8Block& in = x[r * x_stride];
          sum[r][v] = V::fma(d, V::multiply(dot[r], V::splat(in.scale)), sum[r][v]);
          if constexpr (L::has_offset) sum[r][v] = V::fma(c, V::splat(in.scaled_sum), sum[r][v]);
        });
      });
    });
  }
  unroll<R * P * V::kVectors>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * V::kVectors), v = i % (P * V::kVectors);
    V::store(out + r * P * kPanel + v * V::kLanes, sum[r][v]);
  });
}

template <typename V, typename L, int R, int P>
void run_tile(const LinearTask& task, int64_t p, int64_t row) {
  alignas(64) float sums[R * P * kPanel];
  const auto* x =
      reinterpret_cast<const Int8Block*>(task.x) + row * (task.in_features / kInt8Block);
  multiply_rows<V, L, R, P>(task, p, x, sums);
  const int64_t first = p * kPanel;
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t n = 0; n < P * kPanel && first + n < task.num_outputs; ++n) {
      task.out[(row + r) * task.out_stride + first + n] = sums[r * P * kPanel + n];
    }
  }
}

template <typename V, typename L>
void run_int8(const LinearTask& task) {
  int64_t p = task.panel_begin;
  if (task.num_rows == 1) {
    for (; p + 2 <= task.panel_end; p += 2) run_tile<V, L, 1, 2>(task, p, 0);
  }
  for (; p < task.panel_end; ++p) {
    int64_t row = 0;
    for (; row + 4 <= task.num_rows; row += 4) run_tile<V, L, 4, 1>(task, p, row);
    switch (task.num_rows - row) {
      case 3:
        run_tile<V, L, 3, 1>(task, p, row);
        break;
      case 2:
        run_tile<V, L, 2, 1>(task, p, row);
        break;
      case 1:
        run_tile<V, L, 1, 1>(task, p, row);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace zipage::cpu
