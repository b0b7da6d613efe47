// Contracts of the transformer's ops. Activations are `dtype` (f32, or bf16/f16 on a GPU),
// row-major. Every op may be called with num_tokens 0. In f32 a row's result is independent of the
// other rows: the reduction order of each output element is fixed by shape alone.
#pragma once

#include <cstdint>

#include "backend/batch.h"
#include "backend/kv_view.h"
#include "tensor/dtype.h"

namespace zipage {

class LinearWeight;  // backend.h: packed by the backend

// out[t, :] = table[id, :], where id is ids[t], or previous_tokens[-1 - ids[t]] if ids[t] is
// negative: a token that the step before this one sampled and the host has not read yet.
struct EmbedArgs {
  DType dtype;
  const LinearWeight* table;  // [vocab, hidden]; the same object serves a tied lm_head
  const int32_t* ids;         // [T]
  const int32_t*
      previous_tokens;  // the last step's sampled tokens; may be null when no id is negative
  int32_t num_tokens;
  int32_t hidden;
  void* out;  // [T, hidden]
};

// out = x / sqrt(mean(x^2) + eps) * weight, statistics in f32.
// With `residual`: residual += x first (in place), and out is the norm of the sum.
struct RmsNormArgs {
  DType dtype;
  const void* x;        // [T, hidden]
  void* residual;       // [T, hidden] in/out, or null
  const float* weight;  // [hidden], device memory
  float eps;
  int32_t num_tokens;
  int32_t hidden;
  void* out;  // [T, hidden]; may alias x
};

// out = x W^T (+ bias). f32 accumulation.
struct LinearArgs {
  DType dtype;                 // of x
  DType out_dtype;             // of out: dtype, or kF32 (logits)
  const LinearWeight* weight;  // [out_features, in_features]
  const void* x;               // [T, in_features]
  int32_t num_tokens;
  void* out;  // [T, out_features]
  // What the linear() behind this one will read, or null: a backend may begin to fetch it.
  const LinearWeight* next = nullptr;
};

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, intermediate + i]
struct SiluMulArgs {
  DType dtype;
  const void* gate_up;  // [T, 2 * intermediate]
  int32_t num_tokens;
  int32_t intermediate;
  void* out;  // [T, intermediate]
};

// out[i, :] = x[rows[i], :]
struct GatherRowsArgs {
  DType dtype;
  const void* x;        // [T, hidden]
  const int32_t* rows;  // [num_rows]
  int32_t num_rows;
  int32_t hidden;
  void* out;  // [num_rows, hidden]
};

// Splits qkv, norms each q and k head (when weights are given), rotates both by the true position,
// writes k and v to their pages, q to `q_out`, and q to the query cache where batch.query_slots
// says. RoPE is the half-split form: (x[i], x[i + rotary_dim/2]) is rotated by angle i; dimensions
// from rotary_dim on pass through.
struct AttentionPrepareArgs {
  DType dtype;
  const void* qkv;      // [T, (num_q_heads + 2 * num_kv_heads) * head_dim]
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float norm_eps;
  const float*
      rope_cos_sin;  // [max_positions, rotary_dim]: cos of the rotary_dim/2 angles, then their sin
  int32_t rotary_dim;
  const StepBatch* batch;
  const PagedKvView* kv;
  int32_t layer;
  void* q_out;  // [T, num_q_heads, head_dim]
};

// Causal attention of this step's queries over the pages, online softmax in f32. Partials per
// absolute block of the row's table, combined in block order: prefill and decode add in the same
// order.
struct PagedAttentionArgs {
  DType dtype;
  const void* q;  // [T, num_q_heads, head_dim]
  const StepBatch* batch;
  const PagedKvView* kv;
  int32_t layer;
  float scale;      // usually 1 / sqrt(head_dim)
  void* out;        // [T, num_q_heads * head_dim]
  void* workspace;  // Backend::attention_workspace_bytes()
};

}  // namespace zipage
