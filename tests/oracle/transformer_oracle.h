// The transformer's ops (backend/ops/transformer.h) in double precision, as plain loops over the
// same arguments in host memory. Inputs are read as the type they are stored in; results are not
// rounded.
#pragma once

#include <vector>

#include "backend/ops/transformer.h"

namespace zipage::oracle {

// Element `index` of an array of f32, f16 or bf16.
double read_element(const void* data, DType dtype, int64_t index);

struct RmsNormResult {
  std::vector<double> out;       // [T, hidden]
  std::vector<double> residual;  // [T, hidden]; empty without one
};
RmsNormResult rms_norm(const RmsNormArgs& args);

// x [T, in], weight [out, in], bias [out] or empty -> [T, out]
std::vector<double> linear(const std::vector<double>& x,
                           const std::vector<double>& weight,
                           const std::vector<double>& bias,
                           int64_t num_tokens,
                           int64_t in_features,
                           int64_t out_features);

std::vector<double> silu_mul(const SiluMulArgs& args);  // [T, intermediate]

struct PreparedHeads {
  // [T, num_kv_heads, head_dim]: what goes to the page, before k_scale and rounding.
  std::vector<double> q;  // [T, num_q_heads, head_dim]
  std::vector<double> k;
  std::vector<double> v;  // [T, num_kv_heads, head_dim]
};
PreparedHeads attention_prepare(const AttentionPrepareArgs& args);

struct AttentionResult {
  std::vector<double> out;  // [T, num_q_heads, head_dim]
  // Largest |score| and |v| that a query saw: what a tolerance is made of.
  std::vector<double> max_score;  // [T, num_q_heads]
  std::vector<double> max_value;  // [T, num_q_heads]
};
AttentionResult paged_attention(const PagedAttentionArgs& args);

}  // namespace zipage::oracle
