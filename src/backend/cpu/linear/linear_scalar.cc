// Linear kernels for any CPU. One output element is one sum in ascending k, so a row's result
// depends on nothing else.
#include <algorithm>

#include "backend/cpu/linear/linear_kernel.h"
#include "tensor/dtype.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kRows = 4;  // a panel's inputs are widened once for so many rows

// Each format gives the 16 weights of input k.
struct Bf16Panel {
  static void load(const std::byte* panel, int64_t k, float (&w)[kPanel]) {
    const auto* pairs = reinterpret_cast<const uint16_t*>(panel) + k / 2 * 2 * kPanel + k % 2;
    for (int64_t n = 0; n < kPanel; ++n) w[n] = bf16_to_f32(pairs[2 * n]);
  }
};
struct F16Panel {
  static void load(const std::byte* panel, int64_t k, float (&w)[kPanel]) {
    const auto* row = reinterpret_cast<const uint16_t*>(panel) + k * kPanel;
    for (int64_t n = 0; n < kPanel; ++n) w[n] = f16_to_f32(row[n]);
  }
};
struct F32Panel {
  static void load(const std::byte* panel, int64_t k, float (&w)[kPanel]) {
    const auto* row = reinterpret_cast<const float*>(panel) + k * kPanel;
    for (int64_t n = 0; n < kPanel; ++n) w[n] = row[n];
  }
};

template <typename Panel>
void run(const LinearTask& task) {
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    const std::byte* panel = task.panels + p * task.panel_bytes;
    const int64_t first = p * kPanel;
    const int64_t count = std::min(kPanel, task.num_outputs - first);
    for (int64_t row = 0; row < task.num_rows; row += kRows) {
      const int64_t rows = std::min(kRows, task.num_rows - row);
      float sum[kRows][kPanel] = {};
      for (int64_t r = 0; r < rows && task.bias != nullptr; ++r) {
        std::copy_n(task.bias + first, count, sum[r]);
      }
      for (int64_t k = 0; k < task.in_features; ++k) {
        float w[kPanel];
        Panel::load(panel, k, w);
        for (int64_t r = 0; r < rows; ++r) {
          const float x = task.x[(row + r) * task.x_stride + k];
          for (int64_t n = 0; n < kPanel; ++n) sum[r][n] += x * w[n];
        }
      }
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(sum[r], count, task.out + (row + r) * task.out_stride + first);
    }
  }
}

}  // namespace

void linear_bf16_scalar(const LinearTask& task) { run<Bf16Panel>(task); }
void linear_f16_scalar(const LinearTask& task) { run<F16Panel>(task); }
void linear_f32_scalar(const LinearTask& task) { run<F32Panel>(task); }

}  // namespace zipage::cpu
