#include "oracle/transformer_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace zipage::oracle {

double read_element(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return bf16_to_f32(static_cast<const uint16_t*>(data)[index]);
    default:
      check_failed(__FILE__, __LINE__, "dtype of an activation");
  }
}

RmsNormResult rms_norm(const RmsNormArgs& args) {
  const int64_t n = args.hidden;
  RmsNormResult result;
  result.out.resize(static_cast<size_t>(args.num_tokens * n));
  if (args.residual != nullptr) result.residual.resize(result.out.size());
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    // r = residual + x; out = r / sqrt(mean(r^2) + eps) * weight
    std::vector<double> r(static_cast<size_t>(n));
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      r[i] = read_element(args.x, args.dtype, t * n + i);
      if (args.residual != nullptr) {
        r[i] += read_element(args.residual, args.dtype, t * n + i);
        result.residual[t * n + i] = r[i];
      }
      squares += r[i] * r[i];
    }
    const double root = std::sqrt(squares / static_cast<double>(n) + args.eps);
    for (int64_t i = 0; i < n; ++i) result.out[t * n + i] = r[i] / root * args.weight[i];
  }
  return result;
}

std::vector<double> linear(const std::vector<double>& x,
                           const std::vector<double>& weight,
                           const std::vector<double>& bias,
                           int64_t num_tokens,
                           int64_t in_features,
                           int64_t out_features) {
  std::vector<double> out(static_cast<size_t>(num_tokens * out_features));
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t o = 0; o < out_features; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in_features; ++i)
        sum += x[t * in_features + i] * weight[o * in_features + i];
      out[t * out_features + o] = sum;
    }
  }
  return out;
}

std::vector<double> silu_mul(const SiluMulArgs& args) {
  const int64_t n = args.intermediate;
  std::vector<double> out(static_cast<size_t>(args.num_tokens * n));
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      // silu(g) * u, silu(g) = g / (1 + e^-g)
      const double g = read_element(args.gate_up, args.dtype, t * 2 * n + i);
      const double u = read_element(args.gate_up, args.dtype, t * 2 * n + n + i);
      out[t * n + i] = g / (1 + std::exp(-g)) * u;
    }
  }
  return out;
}

namespace {

// RMS norm of a head, then RoPE: (x[i], x[i + r/2]) turned by angle i of the position, r =
// rotary_dim.
void prepare(const AttentionPrepareArgs& args, const float* norm, int32_t position, double* x) {
  const int32_t dim = args.kv->head_dim;
  if (norm != nullptr) {
    double squares = 0;
    for (int32_t i = 0; i < dim; ++i) squares += x[i] * x[i];
    const double root = std::sqrt(squares / dim + args.norm_eps);
    for (int32_t i = 0; i < dim; ++i) x[i] = x[i] / root * norm[i];
  }
  const int32_t half = args.rotary_dim / 2;
  for (int32_t i = 0; i < half; ++i) {
    const double cosine = args.rope_cos_sin[static_cast<int64_t>(position) * args.rotary_dim + i];
    const double sine =
        args.rope_cos_sin[static_cast<int64_t>(position) * args.rotary_dim + half + i];
    const double a = x[i], b = x[i + half];
    x[i] = a * cosine - b * sine;
    x[i + half] = b * cosine + a * sine;
  }
}

}  // namespace

PreparedHeads attention_prepare(const AttentionPrepareArgs& args) {
  const int64_t dim = args.kv->head_dim, num_q = args.kv->num_q_heads,
                num_kv = args.kv->num_kv_heads;
  PreparedHeads result;
  for (int64_t t = 0; t < args.batch->num_tokens; ++t) {
    for (int64_t h = 0; h < num_q + 2 * num_kv; ++h) {
      std::vector<double> x(static_cast<size_t>(dim));
      for (int64_t i = 0; i < dim; ++i) {
        x[i] = read_element(args.qkv, args.dtype, (t * (num_q + 2 * num_kv) + h) * dim + i);
      }
      const bool is_q = h < num_q, is_k = !is_q && h < num_q + num_kv;
      if (is_q || is_k)
        prepare(args, is_q ? args.q_norm : args.k_norm, args.batch->positions[t], x.data());
      std::vector<double>& to = is_q ? result.q : is_k ? result.k : result.v;
      to.insert(to.end(), x.begin(), x.end());
    }
  }
  return result;
}

AttentionResult paged_attention(const PagedAttentionArgs& args) {
  const StepBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  const LayerKvView& layer = kv.layers[args.layer];
  const int64_t dim = kv.head_dim, num_q = kv.num_q_heads, group = num_q / kv.num_kv_heads;
  AttentionResult result;
  result.out.resize(static_cast<size_t>(batch.num_tokens * num_q * dim));
  result.max_score.resize(static_cast<size_t>(batch.num_tokens * num_q));
  result.max_value.resize(result.max_score.size());
  for (int64_t row = 0; row < batch.num_rows; ++row) {
    const int32_t num_tokens = batch.row_begin[row + 1] - batch.row_begin[row];
    for (int32_t j = 0; j < num_tokens; ++j) {
      const int64_t token = batch.row_begin[row] + j;
      const int32_t seen = batch.kv_lens[row] - num_tokens + j + 1;
      for (int64_t h = 0; h < num_q; ++h) {
        const int64_t kv_head = h / group;
        const double k_scale = layer.k_scale == nullptr ? 1 : layer.k_scale[kv_head];
        const double v_scale = layer.v_scale == nullptr ? 1 : layer.v_scale[kv_head];
        const auto entry = [&](int32_t i) {
          const int64_t block =
              batch.block_tables[row * batch.block_table_stride + i / kv.block_size];
          return ((block * kv.num_kv_heads + kv_head) * kv.block_size + i % kv.block_size) * dim;
        };
        // s_i = scale * q . k_i; out = sum_i e^(s_i - m) v_i / sum_i e^(s_i - m)
        std::vector<double> scores(static_cast<size_t>(seen));
        double highest = -std::numeric_limits<double>::infinity();
        for (int32_t i = 0; i < seen; ++i) {
          double dot = 0;
          for (int64_t d = 0; d < dim; ++d) {
            dot += read_element(args.q, args.dtype, (token * num_q + h) * dim + d) *
                   read_element(layer.k, kv.dtype, entry(i) + d) * k_scale;
          }
          scores[i] = args.scale * dot;
          highest = std::max(highest, scores[i]);
          double& largest = result.max_score[token * num_q + h];
          largest = std::max(largest, std::abs(scores[i]));
        }
        double* out = &result.out[(token * num_q + h) * dim];
        double total = 0;
        for (int32_t i = 0; i < seen; ++i) {
          const double weight = std::exp(scores[i] - highest);
          total += weight;
          for (int64_t d = 0; d < dim; ++d) {
            const double value = read_element(layer.v, kv.dtype, entry(i) + d) * v_scale;
            out[d] += weight * value;
            double& largest = result.max_value[token * num_q + h];
            largest = std::max(largest, std::abs(value));
          }
        }
        for (int64_t d = 0; d < dim; ++d) out[d] /= total;
      }
    }
  }
  return result;
}

}  // namespace zipage::oracle
