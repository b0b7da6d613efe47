// GEMM for AMX-BF16: inputs rounded to bf16; a tile instruction adds 16 rows x 16 outputs x 32 inputs
// in f32.
//
// Idea: 2 x 2 tiles of sums (32 rows x 32 outputs), so that each loaded tile of inputs and of weights
// is used twice. Panels already have the pairs that the instruction wants.
//
// Cost of 6144 x 1024 at 64 rows: 12.6 MB and 0.8 Gflop. Below 8 rows vectors are as fast, since memory
// decides (linear_plan.cc). Measure with bench_ops_cpu_linear --dtype bf16 --compute bf16 --isa amx.
// Tried and dropped: the compiler's tile intrinsics (GCC 12 moves stores across them, tiles_amx.h).
#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/linear/tiles_amx.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileInputs = 32;
constexpr int64_t kTileBytes = 1024;  // of a panel: 16 pairs of inputs x 16 outputs
constexpr int64_t kPrefetchBytes = 4096;

void prefetch_tile(const std::byte* from) {
  for (int64_t b = 0; b < kTileBytes; b += 64) __builtin_prefetch(from + b, 0, 3);
}

// 32 rows x 32 outputs in tiles 0-3 (row half * 2 + output half), x in tiles 4-5, weights in tiles
// 6-7. With one row half or one panel, the missing half repeats the other's operand and is not
// stored.
struct Block {
  const std::byte* x[2];  // rows of bf16, x_bytes apart
  int64_t x_bytes;
  const std::byte* w[2];  // panels
  int64_t num_steps;      // of 32 inputs
  const float* bias[2];   // [16], or null
  bool two_rows, two_panels;
  // Bytes ahead of each panel to fetch, from step `near_step` on `ahead_near`; < 0: none.
  int64_t near_step, ahead, ahead_near;
};

void multiply_block(const Block& b) {
  if (b.bias[0] == nullptr) {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
  } else {  // a stride of 0 puts the same 16 values into every row
    const int64_t same = 0;
    TILE_LOAD(0, b.bias[0], same);
    TILE_LOAD(1, b.bias[1], same);
    TILE_LOAD(2, b.bias[0], same);
    TILE_LOAD(3, b.bias[1], same);
  }
  const int64_t line = 64;
  for (int64_t s = 0; s < b.num_steps; ++s) {
    const std::byte* w0 = b.w[0] + s * kTileBytes;
    const std::byte* w1 = b.w[1] + s * kTileBytes;
    const int64_t ahead = s < b.near_step ? b.ahead : b.ahead_near;
    if (ahead >= 0) {
      prefetch_tile(w0 + ahead);
      if (b.two_panels) prefetch_tile(w1 + ahead);
    }
    TILE_LOAD(4, b.x[0] + s * line, b.x_bytes);
    TILE_LOAD(6, w0, line);
    TILE_MULTIPLY_ADD_BF16(0, 4, 6);
    if (b.two_panels) {
      TILE_LOAD(7, w1, line);
      TILE_MULTIPLY_ADD_BF16(1, 4, 7);
    }
    if (b.two_rows) {
      TILE_LOAD(5, b.x[1] + s * line, b.x_bytes);
      TILE_MULTIPLY_ADD_BF16(2, 5, 6);
      if (b.two_panels) TILE_MULTIPLY_ADD_BF16(3, 5, 7);
    }
  }
}

// Writes the valid corner of a tile of sums, which went through `sums` where it is not whole.
void copy_corner(const float* sums, float* out, int64_t out_stride, int64_t rows, int64_t outputs) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < outputs; ++n) out[r * out_stride + n] = sums[r * kPanel + n];
  }
}

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

void linear_bf16_amx(const LinearTask& task) {
  const TileConfig config;
  TILE_CONFIGURE(config);
  const int64_t num_steps = (task.in_features + kTileInputs - 1) / kTileInputs;
  const int64_t x_bytes = task.x_stride * 4;
  const auto* x = reinterpret_cast<const std::byte*>(task.x);
  for (int64_t p = task.panel_begin; p < task.panel_end; p += 2) {
    const bool two_panels = p + 1 < task.panel_end;
    for (int64_t row = 0; row < task.num_rows; row += 2 * kTileRows) {
      const bool two_rows = task.num_rows - row > kTileRows;
      Block b = {};
      b.x_bytes = x_bytes;
      b.num_steps = num_steps;
      b.two_rows = two_rows;
      b.two_panels = two_panels;
      for (int64_t h = 0; h < 2; ++h) {
        b.x[h] = x + (row + (two_rows ? h : 0) * kTileRows) * x_bytes;
        b.w[h] = task.panels + (p + (two_panels ? h : 0)) * task.panel_bytes;
        b.bias[h] =
            task.bias == nullptr ? nullptr : task.bias + (p + (two_panels ? h : 0)) * kPanel;
      }
      const int64_t num_panels = two_panels ? 2 : 1;
      if (row == 0) {  // the pass that meets weights first fetches what comes after them
        b.ahead = kPrefetchBytes / num_panels;
        b.near_step = num_steps - b.ahead / kTileBytes;
        b.ahead_near = (num_panels - 1) * task.panel_bytes + b.ahead;
      } else {
        b.ahead_near = -1;
      }
      multiply_block(b);
      float* out = task.out + row * task.out_stride + p * kPanel;
      const int64_t out_bytes = task.out_stride * 4;
      const int64_t tile_bytes = 64;
      alignas(64) float sums[kTileRows * kPanel];
      for (int64_t t = 0; t < 4; ++t) {
        if ((t / 2 == 1 && !two_rows) || (t % 2 == 1 && !two_panels)) continue;
        const int64_t rows = min(kTileRows, task.num_rows - row - t / 2 * kTileRows);
        const int64_t outputs = min(kPanel, task.num_outputs - (p + t % 2) * kPanel);
        const bool whole = rows == kTileRows && outputs == kPanel;
        float* corner = out + t / 2 * kTileRows * task.out_stride + t % 2 * kPanel;
        float* to = whole ? corner : sums;
        const int64_t stride = whole ? out_bytes : tile_bytes;
        switch (t) {
          case 0:
            TILE_STORE(0, to, stride);
            break;
          case 1:
            TILE_STORE(1, to, stride);
            break;
          case 2:
            TILE_STORE(2, to, stride);
            break;
          default:
            TILE_STORE(3, to, stride);
            break;
        }
        if (!whole) copy_corner(sums, corner, task.out_stride, rows, outputs);
      }
    }
  }
  TILE_RELEASE();
}

}  // namespace zipage::cpu
