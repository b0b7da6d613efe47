// The tensors of a model by their role (q_proj, up_proj, ...), with shapes checked against its
// config. Views into a WeightSource: nothing is copied unless rows have to be reordered.
//
// Thread: the one that loads the model.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/tensor.h"
#include "weights/weight_source.h"

namespace zipage {

// Tensors point into the WeightSource they were loaded from, or into `owned`.
struct LayerWeights {
  // [hidden]
  HostTensor input_norm, post_attention_norm;
  // [num_q_heads * head_dim, hidden]
  HostTensor q_proj;
  // [num_kv_heads * head_dim, hidden]
  HostTensor k_proj, v_proj;
  // [hidden, num_q_heads * head_dim]
  HostTensor o_proj;
  // [intermediate, hidden]
  HostTensor gate_proj, up_proj;
  // [hidden, intermediate]
  HostTensor down_proj;
  // [head_dim]; data null without qk_norm.
  HostTensor q_norm, k_norm;
  std::optional<HostTensor> q_bias, k_bias, v_bias, o_proj_bias;
  std::optional<HostTensor> gate_bias, up_bias, down_proj_bias;
  // Rows of q and k put in the order of half-split RoPE, where the file has another.
  std::vector<std::shared_ptr<const std::byte[]>> owned;

  // For Backend::make_linear: empty, or one a part.
  std::vector<HostTensor> qkv_bias() const;
  std::vector<HostTensor> o_bias() const;
  std::vector<HostTensor> gate_up_bias() const;
  std::vector<HostTensor> down_bias() const;
};

// Keeps the source it was loaded from in mind: that must outlive it.
struct ModelWeights {
  // [vocab, hidden]
  HostTensor embedding;
  // [hidden]
  HostTensor final_norm;
  // [vocab, hidden]; the embedding when the two are tied.
  HostTensor lm_head;
  std::vector<LayerWeights> layers;
  // Tensors of the source that have no role; for a warning.
  std::vector<std::string> unused;
  const WeightSource* source = nullptr;

  // The bytes of a layer, and of the tensors that belong to none, are there to be read only after
  // these. Throw kDataLoss when a file cannot be read any more.
  void fetch_layer(int32_t layer) const;
  void fetch_rest() const;
  // For a backend that has packed a layer into memory of its own: frees what the layer owns, lets
  // the system take back the pages of the file, and leaves the layer empty.
  void release_layer(int32_t layer);
  // The same for the tensors that belong to no layer.
  void release_rest() const;
};

// Throws kNotFound for a missing tensor, kDataLoss for a wrong shape or a tensor that the config
// denies (a bias without attention_bias, ...), kUnimplemented for an element type of no use.
ModelWeights load_model_weights(const WeightSource& source, const ModelConfig& config);
// One layer, for callers that pack layer by layer and free `owned` as they go.
LayerWeights load_layer_weights(const WeightSource& source,
                                const ModelConfig& config,
                                int32_t layer);

// GGUF files of Llama store the rows of q and k so that RoPE turns rows (2i, 2i + 1) of a head;
// here they return to the order that turns (i, i + head_dim / 2). Whole rows move, so packed types
// are fine. `tensor` is [num_heads * head_dim, ...]; returns the bytes in the new order.
std::shared_ptr<const std::byte[]> deinterleave_rows(const HostTensor& tensor, int32_t head_dim);

}  // namespace zipage
