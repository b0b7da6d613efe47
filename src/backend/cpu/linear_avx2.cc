// Linear kernels for AVX2 with FMA and F16C. An output element is one chain of fused multiply-adds
// in ascending k that starts at its bias: whatever tile it is computed in, the same bits come out.
#include <immintrin.h>

#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/unroll.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kMaxTileRows = 6;  // 6 x 16 sums fill 12 of 16 registers
constexpr int64_t kInputBlock =
    512;  // inputs of a panel that stay in the first-level cache: 16 KB of bf16
constexpr int64_t kRowBlock = 120;  // rows whose inputs stay in the second-level cache

constexpr int64_t kPrefetchBytes =
    4096;  // ahead, over all streams: what is in flight at full bandwidth

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
};

// What a tile fetches ahead while it reads its panels.
enum class Fetch {
  kNothing,
  kStream,  // the same panels a little further on, and near their end the begin of the next group:
            // weights pass once
  kNext,    // the next input block, into the second-level cache, where this one is used by several
            // tiles
};

// Sums of R rows and P panels, in registers.
template <typename W, int R, int P, Fetch kFetch>
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
    if constexpr (kFetch != Fetch::kNothing) {
      constexpr auto kHint = kFetch == Fetch::kStream ? _MM_HINT_T0 : _MM_HINT_T1;
      unroll<P>([&](auto p) ZIPAGE_ALWAYS_INLINE {
        _mm_prefetch(reinterpret_cast<const char*>(panel + p * panel_bytes + ahead), kHint);
      });
    }
    unroll<W::kStep>(multiply);
    panel += W::kStepBytes;
    x += W::kStep;
  };
  const int64_t steps = a.count / W::kStep;
  int64_t s = 0;
  if constexpr (kFetch == Fetch::kStream) {
    constexpr int64_t kAhead = kPrefetchBytes / P;
    for (; s < steps - kAhead / W::kStepBytes; ++s) step(kAhead);
    for (; s < steps; ++s) step((P - 1) * panel_bytes + kAhead);
  } else {
    const int64_t next = steps * W::kStepBytes;
    for (; s < steps; ++s) step(next);
  }
  if (W::kStep == 2 && a.count % 2 != 0) unroll<1>(multiply);
  unroll<R * P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    constexpr int r = i / (P * 2), p = i / 2 % P, h = i % 2;
    _mm256_storeu_ps(a.out + r * a.out_stride + kPanel * p + 8 * h, sum[r][p][h]);
  });
}

// Up to 6 rows against `num_panels` panels.
template <typename W, Fetch kFetch>
void run_rows(const TileArgs& a, int64_t rows, int64_t num_panels) {
  switch (rows * 8 + num_panels) {
    case 1 * 8 + 4:
      return run_tile<W, 1, 4, kFetch>(a);
    case 1 * 8 + 3:
      return run_tile<W, 1, 3, kFetch>(a);
    case 1 * 8 + 2:
      return run_tile<W, 1, 2, kFetch>(a);
    case 1 * 8 + 1:
      return run_tile<W, 1, 1, kFetch>(a);
    case 2 * 8 + 2:
      return run_tile<W, 2, 2, kFetch>(a);
    case 2 * 8 + 1:
      return run_tile<W, 2, 1, kFetch>(a);
    case 3 * 8 + 2:
      return run_tile<W, 3, 2, kFetch>(a);
    case 3 * 8 + 1:
      return run_tile<W, 3, 1, kFetch>(a);
    case 4 * 8 + 1:
      return run_tile<W, 4, 1, kFetch>(a);
    case 5 * 8 + 1:
      return run_tile<W, 5, 1, kFetch>(a);
    case 6 * 8 + 1:
      return run_tile<W, 6, 1, kFetch>(a);
    default:
      return;
  }
}

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows [0, rows) against a group of panels, input block by input block.
template <typename W>
void run_group(const LinearTask& task,
               const float* x,
               float* out,
               int64_t rows,
               int64_t first_panel,
               int64_t num_panels,
               const float* bias,
               int64_t out_stride) {
  const std::byte* panel = task.panels + first_panel * task.panel_bytes;
  const bool one_tile = rows <= kMaxTileRows;
  const int64_t block = one_tile ? task.in_features : kInputBlock;
  for (int64_t k = 0; k < task.in_features; k += block) {
    TileArgs a = {};
    a.panel = panel + k / W::kStep * W::kStepBytes;
    a.panel_bytes = task.panel_bytes;
    a.x_stride = task.x_stride;
    a.count = min(block, task.in_features - k);
    a.out_stride = out_stride;
    const int64_t num_tiles = (rows + kMaxTileRows - 1) / kMaxTileRows;
    for (int64_t t = 0; t < num_tiles; ++t) {
      // Tiles of nearly equal height: a tile of 1 row would be bound by latency.
      const int64_t row = t * rows / num_tiles;
      const int64_t tile_rows = (t + 1) * rows / num_tiles - row;
      a.x = x + row * task.x_stride + k;
      a.out = out + row * out_stride;
      a.start = k > 0 ? a.out : bias;
      a.start_stride = k > 0 ? out_stride : 0;
      if (one_tile) {
        run_rows<W, Fetch::kStream>(a, tile_rows, num_panels);
      } else if (t == 0) {
        run_rows<W, Fetch::kNext>(a, tile_rows, num_panels);
      } else {
        run_rows<W, Fetch::kNothing>(a, tile_rows, num_panels);
      }
    }
  }
}

template <typename W>
void run(const LinearTask& task) {
  constexpr int64_t kPanelsByRows[] = {4, 4, 2, 2};
  for (int64_t row = 0; row < task.num_rows;) {
    const int64_t left = task.num_rows - row;
    const int64_t blocks = (left + kRowBlock - 1) / kRowBlock;
    const int64_t rows = left / blocks;
    const int64_t group = rows < 4 ? kPanelsByRows[rows] : 1;
    const float* x = task.x + row * task.x_stride;
    for (int64_t p = task.panel_begin; p < task.panel_end;) {
      const int64_t first = p * kPanel;
      const bool partial = task.num_outputs - first < kPanel;
      int64_t panels = min(task.panel_end, task.num_outputs / kPanel) - p;
      if (panels > group) panels = panels < 2 * group ? (panels + 1) / 2 : group;
      const float* bias = task.bias == nullptr ? nullptr : task.bias + first;
      float* out = task.out + row * task.out_stride + first;
      if (!partial) {
        run_group<W>(task, x, out, rows, p, panels, bias, task.out_stride);
      } else {  // the panel's end lies beyond the outputs: compute beside them
        panels = 1;
        const int64_t count = task.num_outputs - first;
        float sums[kRowBlock * kPanel];
        run_group<W>(task, x, sums, rows, p, 1, bias, kPanel);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t n = 0; n < count; ++n) out[r * task.out_stride + n] = sums[r * kPanel + n];
        }
      }
      p += panels;
    }
    row += rows;
  }
}

}  // namespace

void linear_bf16_avx2(const LinearTask& task) { run<Bf16>(task); }
void linear_f16_avx2(const LinearTask& task) { run<F16>(task); }
void linear_f32_avx2(const LinearTask& task) { run<F32>(task); }

}  // namespace zipage::cpu
