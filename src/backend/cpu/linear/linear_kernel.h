// What the linear kernels of each instruction set are called with. A kernel file knows raw pointers
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/panel_format.h"

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
  const float* x;     // [num_rows, x_stride], or what the kernel says
  int64_t x_stride;
  int64_t num_rows;
  float* out;  // [num_rows, out_stride], at the segment's first output
  int64_t out_stride;
};

using LinearKernel = void (*)(const LinearTask&);

// These take x as bf16: x_stride counts pairs, inputs are padded with zeros to a multiple of 32,
// rows (AMX) to one of 16.
void linear_bf16_avx512bf16(const LinearTask& task);
void linear_bf16_amx(const LinearTask& task);

// Packed weights. expand: a panel as f32 [in_features][16]. quant_gemv: tasks of one row.
using ExpandPanel = void (*)(const std::byte* panel, int64_t in_features, float* out);
ExpandPanel expand_avx2(PanelFormat format);
LinearKernel quant_gemv_avx2(PanelFormat format);

// Packed weights times inputs rounded to 8 bits: x is Int8Block [num_rows][in_features / 32], for
// AMX followed by memory that may hold anything up to a multiple of 16 rows.
struct Int8Block {
  int8_t values[kQuantBlock];
  float scale;       // input = scale * value; NaN where an input was NaN or infinite
  float scaled_sum;  // scale * sum of values
  int32_t sums[2];   // of the first and the last 16 values
};
void round_int8_avx2(const float* x, int64_t num_blocks, Int8Block* rounded);
LinearKernel linear_int8_avx2(PanelFormat format);
LinearKernel linear_int8_avx512vnni(PanelFormat format);
LinearKernel linear_int8_amx(PanelFormat format);  // bit for bit as the one before

// A panel of f32 [count][16] as bf16 pairs [padded_count / 2][16][2], padded with zeros.
void round_panel_avx512bf16(const float* panel,
                            int64_t count,
                            int64_t padded_count,
                            uint16_t* rounded);

// Rounds the `count` inputs of a row to bf16 and pads them to `padded_count`, a multiple of 32.
void round_inputs_avx512bf16(const float* x,
                             int64_t count,
                             int64_t padded_count,
                             uint16_t* rounded);

}  // namespace zipage::cpu
