#include "model/weights.h"

#include <cstring>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "model/families/tensor_names.h"

namespace zipage {
namespace {

// Types that a matrix may have: plain floats and packed ones.
bool is_weight_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || is_packed(dtype);
}

class Loader {
 public:
  Loader(const WeightSource& source, int32_t layer) : source_(source), layer_(layer) {}

  HostTensor matrix(TensorRole role, int64_t rows, int64_t columns) const {
    const HostTensor& tensor = source_.require(name(role), {rows, columns});
    if (!is_weight_type(tensor.dtype)) fail_type(tensor, "a float type or a packed type");
    return tensor;
  }
  HostTensor vector(TensorRole role, int64_t extent) const {
    const HostTensor& tensor = source_.require(name(role), {extent});
    if (!is_weight_type(tensor.dtype) || is_packed(tensor.dtype)) fail_type(tensor, "a float type");
    return tensor;
  }
  // A tensor that the config asks for, or denies.
  std::optional<HostTensor> optional_vector(bool wanted,
                                            const char* field,
                                            TensorRole role,
                                            int64_t extent) const {
    if (wanted) return vector(role, extent);
    if (source_.contains(name(role))) {
      fail(StatusCode::kDataLoss, "{}: tensor '{}' exists, but the config says {} is false",
           source_.path(), name(role), field);
    }
    return std::nullopt;
  }

 private:
  std::string name(TensorRole role) const { return tensor_name(source_.naming(), role, layer_); }
  [[noreturn]] void fail_type(const HostTensor& tensor, const char* expected) const {
    fail(StatusCode::kUnimplemented, "{}: tensor '{}' has type {}; expected {}", source_.path(),
         tensor.name, to_string(tensor.dtype), expected);
  }

  const WeightSource& source_;
  int32_t layer_;
};

std::vector<HostTensor> present(std::initializer_list<std::optional<HostTensor>> tensors) {
  std::vector<HostTensor> list;
  for (const auto& tensor : tensors) {
    if (tensor) list.push_back(*tensor);
  }
  return list;
}

void deinterleave(const WeightSource& source,
                  std::optional<HostTensor>& tensor,
                  LayerWeights& layer,
                  int32_t head_dim) {
  if (!tensor) return;
  source.fetch(*tensor);
  layer.owned.push_back(deinterleave_rows(*tensor, head_dim));
  source.release(*tensor);
  tensor->data = layer.owned.back().get();
}

// Everything that a layer has.
std::vector<HostTensor> all_tensors(const LayerWeights& w) {
  std::vector<HostTensor> tensors = {
      w.input_norm, w.post_attention_norm, w.q_proj,  w.k_proj,   w.v_proj,
      w.o_proj,     w.gate_proj,           w.up_proj, w.down_proj};
  for (const HostTensor& norm : {w.q_norm, w.k_norm}) {
    if (norm.data != nullptr) tensors.push_back(norm);
  }
  for (const auto& list : {w.qkv_bias(), w.o_bias(), w.gate_up_bias(), w.down_bias()}) {
    tensors.insert(tensors.end(), list.begin(), list.end());
  }
  return tensors;
}

// Names that no role claims. Buffers that some exporters store are no surprise.
std::vector<std::string> unused_tensors(const WeightSource& source, const ModelWeights& weights) {
  std::set<std::string> used = {weights.embedding.name, weights.final_norm.name,
                                tensor_name(source.naming(), TensorRole::kLmHead),
                                "rope_freqs.weight"};
  for (const LayerWeights& layer : weights.layers) {
    for (const HostTensor& tensor : all_tensors(layer)) used.insert(tensor.name);
  }
  std::vector<std::string> unused;
  for (std::string& name : source.names()) {
    if (!used.contains(name) && !name.ends_with("rotary_emb.inv_freq")) {
      unused.push_back(std::move(name));
    }
  }
  return unused;
}

}  // namespace

std::vector<HostTensor> LayerWeights::qkv_bias() const { return present({q_bias, k_bias, v_bias}); }
std::vector<HostTensor> LayerWeights::o_bias() const { return present({o_proj_bias}); }
std::vector<HostTensor> LayerWeights::gate_up_bias() const { return present({gate_bias, up_bias}); }
std::vector<HostTensor> LayerWeights::down_bias() const { return present({down_proj_bias}); }

void ModelWeights::fetch_layer(int32_t layer) const {
  for (const HostTensor& tensor : all_tensors(layers.at(static_cast<size_t>(layer)))) {
    source->fetch(tensor);
  }
}

void ModelWeights::fetch_rest() const {
  for (const HostTensor& tensor : {embedding, final_norm, lm_head}) source->fetch(tensor);
}

void ModelWeights::release_layer(int32_t layer) {
  LayerWeights& weights = layers.at(static_cast<size_t>(layer));
  // Reordered rows lie in `owned`, which is no file: release() leaves them alone.
  for (const HostTensor& tensor : all_tensors(weights)) source->release(tensor);
  weights = LayerWeights{};
}

void ModelWeights::release_rest() const {
  for (const HostTensor& tensor : {embedding, final_norm, lm_head}) source->release(tensor);
}

std::shared_ptr<const std::byte[]> deinterleave_rows(const HostTensor& tensor, int32_t head_dim) {
  const int64_t rows = tensor.shape.front();
  ZIPAGE_CHECK_EQ(rows % head_dim, 0);
  ZIPAGE_CHECK_EQ(head_dim % 2, 0);
  const int64_t row_bytes = tensor.bytes() / rows;
  std::shared_ptr<std::byte[]> bytes(new std::byte[static_cast<size_t>(tensor.bytes())]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head_dim;
    const int64_t half = in_head / (head_dim / 2);  // 0: first of its pair, 1: second
    const int64_t pair = in_head % (head_dim / 2);
    const int64_t from = row - in_head + 2 * pair + half;
    std::memcpy(bytes.get() + row * row_bytes, tensor.data + from * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return bytes;
}

LayerWeights load_layer_weights(const WeightSource& source, const ModelConfig& c, int32_t layer) {
  const Loader load(source, layer);
  const int64_t q = int64_t{c.num_q_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_kv_heads} * c.head_dim;
  LayerWeights w;
  w.input_norm = load.vector(TensorRole::kInputNorm, c.hidden_size);
  w.post_attention_norm = load.vector(TensorRole::kPostAttentionNorm, c.hidden_size);
  std::optional<HostTensor> q_proj = load.matrix(TensorRole::kQ, q, c.hidden_size);
  std::optional<HostTensor> k_proj = load.matrix(TensorRole::kK, kv, c.hidden_size);
  w.v_proj = load.matrix(TensorRole::kV, kv, c.hidden_size);
  w.o_proj = load.matrix(TensorRole::kO, c.hidden_size, q);
  w.gate_proj = load.matrix(TensorRole::kGate, c.intermediate_size, c.hidden_size);
  w.up_proj = load.matrix(TensorRole::kUp, c.intermediate_size, c.hidden_size);
  w.down_proj = load.matrix(TensorRole::kDown, c.hidden_size, c.intermediate_size);
  const auto bias = [&](bool wanted, const char* field, TensorRole role, int64_t extent) {
    return load.optional_vector(wanted, field, role, extent);
  };
  w.q_bias = bias(c.attention_bias, "attention_bias", TensorRole::kQBias, q);
  w.k_bias = bias(c.attention_bias, "attention_bias", TensorRole::kKBias, kv);
  w.v_bias = bias(c.attention_bias, "attention_bias", TensorRole::kVBias, kv);
  w.o_proj_bias =
      bias(c.output_bias, "attention_bias of o_proj", TensorRole::kOBias, c.hidden_size);
  w.gate_bias = bias(c.mlp_bias, "mlp_bias", TensorRole::kGateBias, c.intermediate_size);
  w.up_bias = bias(c.mlp_bias, "mlp_bias", TensorRole::kUpBias, c.intermediate_size);
  w.down_proj_bias = bias(c.mlp_bias, "mlp_bias", TensorRole::kDownBias, c.hidden_size);
  const auto q_norm = bias(c.qk_norm, "qk_norm", TensorRole::kQNorm, c.head_dim);
  const auto k_norm = bias(c.qk_norm, "qk_norm", TensorRole::kKNorm, c.head_dim);
  if (q_norm) w.q_norm = *q_norm;
  if (k_norm) w.k_norm = *k_norm;
  if (c.interleaved_qk) {
    deinterleave(source, q_proj, w, c.head_dim);
    deinterleave(source, k_proj, w, c.head_dim);
    deinterleave(source, w.q_bias, w, c.head_dim);
    deinterleave(source, w.k_bias, w, c.head_dim);
  }
  w.q_proj = *q_proj;
  w.k_proj = *k_proj;
  return w;
}

ModelWeights load_model_weights(const WeightSource& source, const ModelConfig& config) {
  const Loader load(source, 0);
  ModelWeights weights;
  weights.source = &source;
  weights.embedding = load.matrix(TensorRole::kEmbedding, config.vocab_size, config.hidden_size);
  weights.final_norm = load.vector(TensorRole::kFinalNorm, config.hidden_size);
  weights.lm_head = config.tie_word_embeddings
                        ? weights.embedding
                        : load.matrix(TensorRole::kLmHead, config.vocab_size, config.hidden_size);
  weights.layers.reserve(static_cast<size_t>(config.num_layers));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(load_layer_weights(source, config, layer));
  }
  weights.unused = unused_tensors(source, weights);
  return weights;
}

}  // namespace zipage
