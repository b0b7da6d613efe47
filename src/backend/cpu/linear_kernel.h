// What the linear kernels of each instruction set are called with. A kernel file knows raw pointers
// only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zipage::cpu {

// out[r, n] = bias[n] + sum_k x[r, k] w[n, k] for rows [0, num_rows) and the outputs of panels
// [panel_begin, panel_end).
struct LinearTask {
  const std::byte* panels;  // of a segment
  int64_t panel_bytes;
  int64_t panel_begin, panel_end;
  int64_t num_outputs;  // of the segment; the last panel may hold fewer than 16
  int64_t in_features;
  const float* bias;  // [num_outputs] or null
  const float* x;     // [num_rows, x_stride]
  int64_t x_stride;
  int64_t num_rows;
  float* out;  // [num_rows, out_stride], at the segment's first output
  int64_t out_stride;
};

using LinearKernel = void (*)(const LinearTask&);

// By panel format (linear.h) and instruction set.
void linear_bf16_scalar(const LinearTask& task);
void linear_f16_scalar(const LinearTask& task);
void linear_f32_scalar(const LinearTask& task);
void linear_bf16_avx2(const LinearTask& task);
void linear_f16_avx2(const LinearTask& task);
void linear_f32_avx2(const LinearTask& task);

}  // namespace zipage::cpu
