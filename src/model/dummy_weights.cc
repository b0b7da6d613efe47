#include "model/dummy_weights.h"

#include <vector>

#include "model/families/tensor_names.h"
#include "weights/dummy.h"

namespace zipage {

std::unique_ptr<WeightSource> make_dummy_weights(const std::string& path, const ModelConfig& c) {
  std::vector<DummyTensor> tensors;
  int32_t layer = 0;
  const auto add = [&](TensorRole role, Shape shape, bool ones) {
    tensors.push_back(
        {tensor_name(WeightNaming::kHuggingFace, role, layer), std::move(shape), ones});
  };
  const auto matrix = [&](TensorRole role, int64_t rows, int64_t columns) {
    add(role, {rows, columns}, false);
  };
  const auto norm = [&](TensorRole role, int64_t extent) { add(role, {extent}, true); };
  const auto bias = [&](TensorRole role, int64_t extent) { add(role, {extent}, false); };
  const int64_t q = int64_t{c.num_q_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_kv_heads} * c.head_dim;
  matrix(TensorRole::kEmbedding, c.vocab_size, c.hidden_size);
  norm(TensorRole::kFinalNorm, c.hidden_size);
  if (!c.tie_word_embeddings) matrix(TensorRole::kLmHead, c.vocab_size, c.hidden_size);
  for (layer = 0; layer < c.num_layers; ++layer) {
    norm(TensorRole::kInputNorm, c.hidden_size);
    norm(TensorRole::kPostAttentionNorm, c.hidden_size);
    matrix(TensorRole::kQ, q, c.hidden_size);
    matrix(TensorRole::kK, kv, c.hidden_size);
    matrix(TensorRole::kV, kv, c.hidden_size);
    matrix(TensorRole::kO, c.hidden_size, q);
    matrix(TensorRole::kGate, c.intermediate_size, c.hidden_size);
    matrix(TensorRole::kUp, c.intermediate_size, c.hidden_size);
    matrix(TensorRole::kDown, c.hidden_size, c.intermediate_size);
    if (c.qk_norm) {
      norm(TensorRole::kQNorm, c.head_dim);
      norm(TensorRole::kKNorm, c.head_dim);
    }
    if (c.attention_bias) {
      bias(TensorRole::kQBias, q);
      bias(TensorRole::kKBias, kv);
      bias(TensorRole::kVBias, kv);
    }
    if (c.output_bias) bias(TensorRole::kOBias, c.hidden_size);
    if (c.mlp_bias) {
      bias(TensorRole::kGateBias, c.intermediate_size);
      bias(TensorRole::kUpBias, c.intermediate_size);
      bias(TensorRole::kDownBias, c.hidden_size);
    }
  }
  return std::make_unique<DummySource>(path, tensors, c.dtype);
}

}  // namespace zipage
