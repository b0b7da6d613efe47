// Contracts of the transformer's ops. Activations are `dtype` (f32, or bf16/f16 on a GPU),
// row-major. Every op may be called with num_tokens 0. In f32 a row's result is independent of the
// other rows: the reduction order of each output element is fixed by shape alone.
#pragma once

#include <cstdint>

#include "backend/batch.h"
#include "backend/kv_view.h"
#include "tensor/dtype.h"

namespace zipage {

// See backend/backend.h: a weight packed by the backend.
class LinearWeight;

// out[t, :] = table[id, :], where id is ids[t], or previous_tokens[-1 - ids[t]] if ids[t] is
// negative: a token that the step before this one sampled and the host has not read yet. One that
// could not be sampled (-1) counts as id 0: its sequence has failed, and the host will find out.
struct EmbedArgs {
  DType dtype;
  // [vocab, hidden]; the same object serves a tied lm_head.
  const LinearWeight* table;
  // [T]
  const int32_t* ids;
  // The last step's sampled tokens; may be null when no id is negative.
  const int32_t* previous_tokens;
  int32_t num_tokens;
  int32_t hidden;
  // [T, hidden]
  void* out;
};

// out = x / sqrt(mean(x^2) + eps) * weight, statistics in f32.
// With `residual`: residual += x first (in place), and out is the norm of the sum.
struct RmsNormArgs {
  DType dtype;
  // [T, hidden]
  const void* x;
  // [T, hidden] in/out, or null.
  void* residual;
  // [hidden], device memory.
  const float* weight;
  float eps;
  int32_t num_tokens;
  int32_t hidden;
  // [T, hidden]; may alias x.
  void* out;
};

// out = x W^T (+ bias). f32 accumulation.
struct LinearArgs {
  // Of x.
  DType dtype;
  // Of out: dtype, or kF32 (logits).
  DType out_dtype;
  // [out_features, in_features]
  const LinearWeight* weight;
  // [T, in_features]
  const void* x;
  int32_t num_tokens;
  // [T, out_features]
  void* out;
  // What the linear() behind this one will read, or null: a backend may begin to fetch it.
  const LinearWeight* next = nullptr;
};

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, intermediate + i]
struct SiluMulArgs {
  DType dtype;
  // [T, 2 * intermediate]
  const void* gate_up;
  int32_t num_tokens;
  int32_t intermediate;
  // [T, intermediate]
  void* out;
};

// out[i, :] = x[rows[i], :]
struct GatherRowsArgs {
  DType dtype;
  // [T, hidden]
  const void* x;
  // [num_rows]
  const int32_t* rows;
  int32_t num_rows;
  int32_t hidden;
  // [num_rows, hidden]
  void* out;
};

// Splits qkv, norms each q and k head (when weights are given), rotates both by the true position,
// writes k and v to their pages, q to `q_out`, and q to the query cache where batch.query_slots
// says. RoPE is the half-split form: (x[i], x[i + rotary_dim/2]) is rotated by angle i; dimensions
// from rotary_dim on pass through.
struct AttentionPrepareArgs {
  DType dtype;
  // [T, (num_q_heads + 2 * num_kv_heads) * head_dim]
  const void* qkv;
  // [head_dim] or null.
  const float* q_norm;
  // [head_dim] or null.
  const float* k_norm;
  float norm_eps;
  // [max_positions, rotary_dim]: cos of the rotary_dim/2 angles, then their sin.
  const float* rope_cos_sin;
  int32_t rotary_dim;
  const StepBatch* batch;
  const PagedKvView* kv;
  int32_t layer;
  // [T, num_q_heads, head_dim]
  void* q_out;
};

// Causal attention of this step's queries over the pages, online softmax in f32. Partials per
// absolute block of the row's table, combined in block order: prefill and decode add in the same
// order.
struct PagedAttentionArgs {
  DType dtype;
  // [T, num_q_heads, head_dim]
  const void* q;
  const StepBatch* batch;
  const PagedKvView* kv;
  int32_t layer;
  // Usually 1 / sqrt(head_dim).
  float scale;
  // [T, num_q_heads * head_dim]
  void* out;
  // Backend::attention_workspace_bytes()
  void* workspace;
};

// The ops of this page, one line each: see ops/op_list.h.
#define ZIPAGE_TRANSFORMER_OPS(op)                                                                \
  op(embed, EmbedArgs) op(rms_norm, RmsNormArgs) op(linear, LinearArgs) op(silu_mul, SiluMulArgs) \
      op(gather_rows, GatherRowsArgs) op(attention_prepare, AttentionPrepareArgs)                 \
          op(paged_attention, PagedAttentionArgs)

}  // namespace zipage
