// The loops of a GEMM over panels: which tile of rows, panels and inputs comes next, and the tile
// itself, whose sums stay in registers. Internal to each file that includes it.
//
// Loops, outermost first: blocks of rows whose inputs fit into the second-level cache, groups of
// panels, blocks of inputs whose weights fit into the first-level cache, tiles of rows. With one tile
// of rows (decode) the weights pass once from memory: one block of all inputs, several panels at a
// time, so that enough loads are under way.
//
// Order of sums: an output is one chain of multiply-adds in ascending k that starts at its bias.
// Where it is cut, sums wait in `out` as the f32 they are. A row's result is therefore the same bits
// in whatever tile, and with whatever rows, it is computed.
//
// A file gives the weights W: kStep inputs lie in kStepBytes of a panel; kInputsPerX inputs are one
// 32-bit element of x (1 as f32, 2 as bf16); get(p, i, v) loads vector v of the 16 weights of element
// i; multiply_add(x, w, sums) adds the products of one element of x with several vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int kPanelVectors = kPanel / kWidth;
constexpr int64_t kInputBlock = 512;
constexpr int64_t kRowBlock = 120;
// Ahead of the loads, over all panels that are read at a time: what is under way at full bandwidth.
constexpr int64_t kPrefetchBytes = 4096;

// Tiles that the registers hold: 32 of them with AVX-512, 16 otherwise. With one row at least 8
// chains of sums, or the latency of an addition would set the pace.
template <int kVectorWidth>
struct TileShape;
template <>
struct TileShape<16> {
  static constexpr int kMaxRows = 12;  // 12 x 32 outputs are 24 sums
  static constexpr int kMaxPanels = 8;
  static constexpr int panels_of(int64_t rows) { return rows == 1 ? 8 : rows < 4 ? 4 : 2; }
  // Vectors of weights that share a broadcast input.
  static constexpr int weight_vectors(int panels) { return panels; }
};
template <>
struct TileShape<8> {
  static constexpr int kMaxRows = 6;  // 6 x 16 outputs are 12 sums
  static constexpr int kMaxPanels = 4;
  static constexpr int panels_of(int64_t rows) { return rows == 1 ? 4 : rows < 4 ? 2 : 1; }
  static constexpr int weight_vectors(int) { return kPanelVectors; }
};
template <>
struct TileShape<4> {
  static constexpr int kMaxRows = 2;  // 2 x 16 outputs are 8 sums
  static constexpr int kMaxPanels = 1;
  static constexpr int panels_of(int64_t) { return 1; }
  static constexpr int weight_vectors(int) { return kPanelVectors; }
};
using Shape = TileShape<kWidth>;

// What weights of any format have in common whose products are rounded in f32.
struct F32Products {
  using Vector = Vec;
  static constexpr int64_t kInputsPerX = 1;
  template <int N>
  static ZIPAGE_INLINE void multiply_add(const float* x, const Vec (&w)[N], Vec* sums) {
    add_products(x, w, sums);
  }
};

struct TileArgs {
  const std::byte* panel;  // at the block's first input
  int64_t panel_bytes;
  const float* x;
  int64_t x_stride;
  int64_t count;       // inputs
  const float* start;  // sums to start from: rows `start_stride` apart, or null: zeros
  int64_t start_stride;
  float* out;
  int64_t out_stride;
  // What to fetch while reading each panel: the bytes `ahead` of it, and from step `near_step` on
  // those `ahead_near`.
  int64_t near_step;
  int64_t ahead, ahead_near;
};
using TileFunction = void (*)(const TileArgs&);

ZIPAGE_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Element i of a step: R rows times P panels.
template <typename W, int R, int P>
ZIPAGE_INLINE void multiply_element(const std::byte* panel,
                                    int64_t panel_bytes,
                                    const float* x,
                                    int64_t x_stride,
                                    int i,
                                    Vec (&sums)[R][P * kPanelVectors]) {
  constexpr int kVectors = P * kPanelVectors;
  constexpr int kAtOnce = R == 1 ? 1 : Shape::weight_vectors(P);
  ZIPAGE_UNROLL
  for (int first = 0; first < kVectors; first += kAtOnce) {
    typename W::Vector w[kAtOnce];
    ZIPAGE_UNROLL
    for (int v = 0; v < kAtOnce; ++v) {
      const int panel_index = (first + v) / kPanelVectors;
      w[v] = W::get(panel + panel_index * panel_bytes, i, (first + v) % kPanelVectors);
    }
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) W::multiply_add(x + r * x_stride + i, w, &sums[r][first]);
  }
}

template <typename W, int R, int P>
void run_tile(const TileArgs& a) {
  constexpr int kVectors = P * kPanelVectors;
  constexpr int kElements = W::kStep / W::kInputsPerX;  // of x in a step
  Vec sums[R][kVectors];
  ZIPAGE_UNROLL
  for (int r = 0; r < R; ++r) {
    ZIPAGE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = a.start == nullptr ? zero() : load(a.start + r * a.start_stride + v * kWidth);
    }
  }
  const std::byte* panel = a.panel;
  const float* x = a.x;
  const int64_t x_stride = a.x_stride, panel_bytes = a.panel_bytes;
  const int64_t ends[2] = {a.near_step, a.count / W::kStep};
  int64_t step = 0;
  for (int phase = 0; phase < 2; ++phase) {
    const int64_t ahead = phase == 0 ? a.ahead : a.ahead_near;
    for (; step < ends[phase]; ++step) {
      ZIPAGE_UNROLL
      for (int p = 0; p < P; ++p) __builtin_prefetch(panel + p * panel_bytes + ahead, 0, 3);
      ZIPAGE_UNROLL
      for (int i = 0; i < kElements; ++i) {
        multiply_element<W, R, P>(panel, panel_bytes, x, x_stride, i, sums);
      }
      panel += W::kStepBytes;
      x += kElements;
    }
  }
  if (W::kStep == 2 && a.count % 2 != 0) {
    multiply_element<W, R, P>(panel, panel_bytes, x, x_stride, 0, sums);
  }
  ZIPAGE_UNROLL
  for (int r = 0; r < R; ++r) {
    ZIPAGE_UNROLL
    for (int v = 0; v < kVectors; ++v) store(a.out + r * a.out_stride + v * kWidth, sums[r][v]);
  }
}

// Tiles by rows and panels; null where panels_of() never asks for one.
template <typename W, int R, int P>
constexpr TileFunction tile_or_null() {
  if constexpr (P <= Shape::panels_of(R)) {
    return run_tile<W, R, P>;
  } else {
    return nullptr;
  }
}
struct TileTable {
  TileFunction of[Shape::kMaxRows * Shape::kMaxPanels];
};
template <typename W, int... kCells>
constexpr TileTable make_tiles(std::integer_sequence<int, kCells...>) {
  return {{tile_or_null<W, kCells / Shape::kMaxPanels + 1, kCells % Shape::kMaxPanels + 1>()...}};
}
template <typename W>
constexpr TileTable kTiles =
    make_tiles<W>(std::make_integer_sequence<int, Shape::kMaxRows * Shape::kMaxPanels>());

// Rows [0, rows) against a group of panels, input block by input block. Sums between blocks wait in
// `out`.
template <typename W>
void run_group(const LinearTask& task,
               const float* x,
               float* out,
               int64_t rows,
               int64_t first_panel,
               int64_t num_panels,
               const float* bias,
               int64_t out_stride) {
  constexpr int64_t kStep = W::kStep, kStepBytes = W::kStepBytes;
  const std::byte* panel = task.panels + first_panel * task.panel_bytes;
  const int64_t num_tiles = (rows + Shape::kMaxRows - 1) / Shape::kMaxRows;
  const int64_t block = num_tiles == 1 ? task.in_features : kInputBlock;
  for (int64_t k = 0; k < task.in_features; k += block) {
    TileArgs a = {};
    a.panel = panel + k / kStep * kStepBytes;
    a.panel_bytes = task.panel_bytes;
    a.x_stride = task.x_stride;
    a.count = min(block, task.in_features - k);
    a.out_stride = out_stride;
    if (num_tiles == 1) {
      // Weights pass once: fetch a little ahead, near the end the begin of the next group.
      a.ahead = kPrefetchBytes / num_panels;
      a.near_step = (a.count * kStepBytes / kStep - a.ahead) / kStepBytes;
      a.ahead_near = (num_panels - 1) * task.panel_bytes + a.ahead;
    } else {
      // The first tile of a block fetches the next block, which the others leave time for.
      const bool last = k + block >= task.in_features;
      a.ahead_near = last ? num_panels * task.panel_bytes - k / kStep * kStepBytes
                          : block / kStep * kStepBytes;
    }
    for (int64_t t = 0; t < num_tiles; ++t) {
      // Tiles of nearly equal height: a tile of 1 row would be bound by latency.
      const int64_t row = t * rows / num_tiles;
      const int64_t tile_rows = (t + 1) * rows / num_tiles - row;
      a.x = x + row * task.x_stride + k / W::kInputsPerX;
      a.out = out + row * out_stride;
      a.start = k > 0 ? a.out : bias;
      a.start_stride = k > 0 ? out_stride : 0;
      if (t > 0) a.ahead_near = 0;
      kTiles<W>.of[(tile_rows - 1) * Shape::kMaxPanels + num_panels - 1](a);
    }
  }
}

template <typename W>
void run_gemm(const LinearTask& task) {
  for (int64_t row = 0; row < task.num_rows;) {
    const int64_t left = task.num_rows - row;
    const int64_t rows = left / ((left + kRowBlock - 1) / kRowBlock);
    const int64_t group = Shape::panels_of(min(rows, Shape::kMaxRows));
    const float* x = task.x + row * task.x_stride;
    const int64_t full_end = min(task.panel_end, task.num_outputs / kPanel);
    for (int64_t p = task.panel_begin; p < task.panel_end;) {
      const int64_t first = p * kPanel;
      const float* bias = task.bias == nullptr ? nullptr : task.bias + first;
      float* out = task.out + row * task.out_stride + first;
      if (p < full_end) {
        int64_t panels = full_end - p;
        if (panels > group) panels = panels < 2 * group ? (panels + 1) / 2 : group;
        run_group<W>(task, x, out, rows, p, panels, bias, task.out_stride);
        p += panels;
        continue;
      }
      // The panel's end lies beyond the outputs: compute beside them.
      float sums[kRowBlock * kPanel];
      run_group<W>(task, x, sums, rows, p, 1, bias, kPanel);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < task.num_outputs - first; ++n)
          out[r * task.out_stride + n] = sums[r * kPanel + n];
      }
      ++p;
    }
    row += rows;
  }
}

}  // namespace
}  // namespace zipage::cpu
