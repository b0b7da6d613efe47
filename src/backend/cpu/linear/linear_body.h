// The order of work of a linear kernel, the same for every instruction set: which rows, panels and
// inputs a tile of registers computes next. Internal to each file that includes it.
//
// A kernel K gives: Weights (how a panel stores a step of inputs: kStep inputs in kStepBytes),
// kInputsPerX (inputs in one 32-bit element of x: 1 as f32, 2 as bf16), kMaxTileRows,
// panels_of(rows): panels that a tile of so many rows takes at a time, and run_tile(TileArgs, rows,
// panels).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear_kernel.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kInputBlock = 512;  // inputs whose weights and rows stay in the first-level cache
constexpr int64_t kRowBlock = 120;    // rows whose inputs stay in the second-level cache
constexpr int64_t kPrefetchBytes =
    4096;  // ahead, over all streams: what is in flight at full bandwidth

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

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows [0, rows) against a group of panels, input block by input block. Sums between blocks wait in
// `out`.
template <typename K>
void run_group(const LinearTask& task,
               const float* x,
               float* out,
               int64_t rows,
               int64_t first_panel,
               int64_t num_panels,
               const float* bias,
               int64_t out_stride) {
  constexpr int64_t kStep = K::Weights::kStep, kStepBytes = K::Weights::kStepBytes;
  const std::byte* panel = task.panels + first_panel * task.panel_bytes;
  const int64_t num_tiles = (rows + K::kMaxTileRows - 1) / K::kMaxTileRows;
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
      a.x = x + row * task.x_stride + k / K::kInputsPerX;
      a.out = out + row * out_stride;
      a.start = k > 0 ? a.out : bias;
      a.start_stride = k > 0 ? out_stride : 0;
      if (t > 0) a.ahead_near = 0;
      K::run_tile(a, tile_rows, num_panels);
    }
  }
}

template <typename K>
void run_linear(const LinearTask& task) {
  for (int64_t row = 0; row < task.num_rows;) {
    const int64_t left = task.num_rows - row;
    const int64_t rows = left / ((left + kRowBlock - 1) / kRowBlock);
    const int64_t group = K::panels_of(min(rows, K::kMaxTileRows));
    const float* x = task.x + row * task.x_stride;
    const int64_t full_end = min(task.panel_end, task.num_outputs / kPanel);
    for (int64_t p = task.panel_begin; p < task.panel_end;) {
      const int64_t first = p * kPanel;
      const float* bias = task.bias == nullptr ? nullptr : task.bias + first;
      float* out = task.out + row * task.out_stride + first;
      if (p < full_end) {
        int64_t panels = full_end - p;
        if (panels > group) panels = panels < 2 * group ? (panels + 1) / 2 : group;
        run_group<K>(task, x, out, rows, p, panels, bias, task.out_stride);
        p += panels;
        continue;
      }
      // The panel's end lies beyond the outputs: compute beside them.
      float sums[kRowBlock * kPanel];
      run_group<K>(task, x, sums, rows, p, 1, bias, kPanel);
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
