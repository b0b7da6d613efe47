#include "model/decoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/tensor.h"

namespace zipage {
namespace {

using SteadyClock = std::chrono::steady_clock;

int32_t q_features(const ModelConfig& c) { return c.num_q_heads * c.head_dim; }
int32_t qkv_features(const ModelConfig& c) {
  return (c.num_q_heads + 2 * c.num_kv_heads) * c.head_dim;
}

// Elements of the activation buffers, in the order of Decoder's members.
struct ActivationShape {
  int64_t residual, hidden, wide, inner, attention;
};

ActivationShape activation_shape(const ModelConfig& c, int64_t tokens) {
  return {tokens * c.hidden_size, tokens * c.hidden_size,
          tokens * std::max<int64_t>(qkv_features(c), 2 * int64_t{c.intermediate_size}),
          tokens * std::max<int64_t>({q_features(c), c.intermediate_size, c.hidden_size}),
          tokens * std::max<int64_t>(q_features(c), c.hidden_size)};
}

}  // namespace

// Adds the time since the last mark to one of the parts.
class Decoder::Clock {
 public:
  Clock(Decoder& decoder, Stream& stream) : decoder_(decoder), stream_(stream) {
    if (decoder.profiling_) decoder.mark_profile(nullptr, stream);
  }
  void mark(double& part) {
    if (decoder_.profiling_) {
      decoder_.mark_profile(&part, stream_);
      return;
    }
    const auto now = SteadyClock::now();
    part += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  Decoder& decoder_;
  Stream& stream_;
  SteadyClock::time_point last_ = SteadyClock::now();
};

void Decoder::mark_profile(double* part, Stream& stream) {
  if (num_marks_ == marks_.size()) marks_.push_back({backend_.create_event(), nullptr});
  Mark& mark = marks_[num_marks_++];
  mark.part = part;
  mark.event->record(stream);
}

void Decoder::take_profile() {
  for (size_t i = 1; i < num_marks_; ++i) {
    if (marks_[i].part != nullptr)
      *marks_[i].part += marks_[i].event->seconds_since(*marks_[i - 1].event);
  }
  num_marks_ = 0;
}

size_t Decoder::activation_bytes(const ModelConfig& config,
                                 DType dtype,
                                 const DecoderLimits& limits) {
  const ActivationShape s = activation_shape(config, limits.max_tokens);
  const int64_t elements = s.residual + s.hidden + s.wide + s.inner + s.attention;
  return static_cast<size_t>(dtype_bytes(dtype, elements)) +
         sizeof(float) * static_cast<size_t>(int64_t{limits.max_logits} * config.vocab_size) +
         limits.attention_workspace_bytes;
}

Decoder::Decoder(Backend& backend,
                 const ModelConfig& config,
                 ModelWeights weights,
                 const DecoderLimits& limits,
                 const Progress& progress)
    : backend_(backend), config_(config), dtype_(backend.activation_dtype()) {
  const auto pack = [&](std::vector<HostTensor> parts, std::vector<HostTensor> bias) {
    auto packed = backend_.make_linear(parts, bias);
    weight_bytes_ += packed->bytes();
    return packed;
  };
  const int total = config.num_layers + 1;
  weights.fetch_rest();
  embedding_ = pack({weights.embedding}, {});
  if (!config.tie_word_embeddings) lm_head_ = pack({weights.lm_head}, {});
  if (progress) progress(1, total);
  layers_.resize(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    weights.fetch_layer(static_cast<int32_t>(i));
    const LayerWeights& w = weights.layers[i];
    Layer& layer = layers_[i];
    layer.qkv = pack({w.q_proj, w.k_proj, w.v_proj}, w.qkv_bias());
    layer.o = pack({w.o_proj}, w.o_bias());
    layer.gate_up = pack({w.gate_proj, w.up_proj}, w.gate_up_bias());
    layer.down = pack({w.down_proj}, w.down_bias());
    layer.input_norm = upload_norm(w.input_norm);
    layer.post_norm = upload_norm(w.post_attention_norm);
    if (config.qk_norm) {
      layer.q_norm = upload_norm(w.q_norm);
      layer.k_norm = upload_norm(w.k_norm);
    }
    weights.release_layer(static_cast<int32_t>(i));
    if (progress) progress(static_cast<int>(i) + 2, total);
  }
  final_norm_ = upload_norm(weights.final_norm);
  weights.release_rest();

  const std::vector<float> rope = rope_table(config, limits.max_positions);
  rope_ = backend_.allocate(rope.size() * sizeof(float), MemorySpace::kDevice);
  const auto stream = backend_.create_stream(false);
  backend_.copy(rope_.data(), rope.data(), rope.size() * sizeof(float), *stream);
  backend_.synchronize(*stream);

  const ActivationShape shape = activation_shape(config, limits.max_tokens);
  const auto activation = [&](int64_t elements) {
    return backend_.allocate(static_cast<size_t>(dtype_bytes(dtype_, elements)),
                             MemorySpace::kDevice);
  };
  residual_ = activation(shape.residual);
  hidden_ = activation(shape.hidden);
  wide_ = activation(shape.wide);
  inner_ = activation(shape.inner);
  attention_ = activation(shape.attention);
  logits_ = backend_.allocate(
      sizeof(float) * static_cast<size_t>(int64_t{limits.max_logits} * config.vocab_size),
      MemorySpace::kDevice);
  workspace_ = backend_.allocate(std::max<size_t>(limits.attention_workspace_bytes, 1),
                                 MemorySpace::kDevice);
}

Buffer Decoder::upload_norm(const HostTensor& tensor) {
  const std::vector<float> values = to_f32(tensor);
  const size_t bytes = values.size() * sizeof(float);
  Buffer buffer = backend_.allocate(bytes, MemorySpace::kDevice);
  const auto stream = backend_.create_stream(false);
  backend_.copy(buffer.data(), values.data(), bytes, *stream);
  backend_.synchronize(*stream);
  weight_bytes_ += bytes;
  return buffer;
}

void Decoder::linear(const LinearWeight& weight,
                     const void* x,
                     int32_t num_tokens,
                     void* out,
                     DType out_dtype,
                     const LinearWeight* next,
                     Stream& stream) {
  backend_.linear({.dtype = dtype_,
                   .out_dtype = out_dtype,
                   .weight = &weight,
                   .x = x,
                   .num_tokens = num_tokens,
                   .out = out,
                   .next = next},
                  stream);
}

void Decoder::norm(
    void* x, void* residual, const Buffer& weight, int32_t num_tokens, void* out, Stream& stream) {
  backend_.rms_norm({.dtype = dtype_,
                     .x = x,
                     .residual = residual,
                     .weight = weight.as<float>(),
                     .eps = static_cast<float>(config_.rms_norm_eps),
                     .num_tokens = num_tokens,
                     .hidden = config_.hidden_size,
                     .out = out},
                    stream);
}

void Decoder::layer_forward(const Layer& layer,
                            int32_t index,
                            const StepBatch& batch,
                            const PagedKvView& kv,
                            Stream& stream) {
  Clock clock(*this, stream);
  const int32_t tokens = batch.num_tokens;
  // The first layer's input is the residual itself; later ones add the last layer's output to it.
  if (index == 0) {
    norm(residual_.data(), nullptr, layer.input_norm, tokens, hidden_.data(), stream);
  } else {
    norm(hidden_.data(), residual_.data(), layer.input_norm, tokens, hidden_.data(), stream);
  }
  clock.mark(times_.other_seconds);
  linear(*layer.qkv, hidden_.data(), tokens, wide_.data(), dtype_, layer.o.get(), stream);
  clock.mark(times_.linear_seconds);
  backend_.attend({.dtype = dtype_,
                   .qkv = wide_.data(),
                   .q_norm = layer.q_norm.as<float>(),
                   .k_norm = layer.k_norm.as<float>(),
                   .norm_eps = static_cast<float>(config_.rms_norm_eps),
                   .rope_cos_sin = rope_.as<float>(),
                   .rotary_dim = config_.rope.rotary_dim,
                   .batch = &batch,
                   .kv = &kv,
                   .layer = index,
                   .q_out = inner_.data()},
                  {.dtype = dtype_,
                   .q = inner_.data(),
                   .batch = &batch,
                   .kv = &kv,
                   .layer = index,
                   .scale = config_.attention_scale(),
                   .out = attention_.data(),
                   .workspace = workspace_.data()},
                  stream);
  clock.mark(times_.attention_seconds);
  linear(*layer.o, attention_.data(), tokens, hidden_.data(), dtype_, layer.gate_up.get(), stream);
  clock.mark(times_.linear_seconds);
  norm(hidden_.data(), residual_.data(), layer.post_norm, tokens, hidden_.data(), stream);
  clock.mark(times_.other_seconds);
  linear(*layer.gate_up, hidden_.data(), tokens, wide_.data(), dtype_, layer.down.get(), stream);
  clock.mark(times_.linear_seconds);
  backend_.silu_mul({.dtype = dtype_,
                     .gate_up = wide_.data(),
                     .num_tokens = tokens,
                     .intermediate = config_.intermediate_size,
                     .out = inner_.data()},
                    stream);
  clock.mark(times_.other_seconds);
  const auto following = static_cast<size_t>(index) + 1;
  const LinearWeight* next = following < layers_.size() ? layers_[following].qkv.get() : &head();
  linear(*layer.down, inner_.data(), tokens, hidden_.data(), dtype_, next, stream);
  clock.mark(times_.linear_seconds);
}

void Decoder::forward(const StepBatch& batch,
                      const PagedKvView& kv,
                      const int32_t* previous_tokens,
                      Stream& stream) {
  const int32_t hidden = config_.hidden_size;
  backend_.embed({.dtype = dtype_,
                  .table = embedding_.get(),
                  .ids = batch.token_ids,
                  .previous_tokens = previous_tokens,
                  .num_tokens = batch.num_tokens,
                  .hidden = hidden,
                  .out = residual_.data()},
                 stream);
  for (int32_t i = 0; i < config_.num_layers; ++i) {
    layer_forward(layers_[static_cast<size_t>(i)], i, batch, kv, stream);
  }
  compute_logits(batch.logits_tokens, batch.num_logits, stream);
}

// Only the tokens whose logits are wanted go on: their hidden states and residuals are gathered in
// buffers of the layers, and the batch's own stay as they are.
void Decoder::compute_logits(const int32_t* tokens, int32_t num_tokens, Stream& stream) {
  if (num_tokens == 0) return;
  Clock clock(*this, stream);
  const auto gather = [&](const Buffer& from, const Buffer& to) {
    backend_.gather_rows({.dtype = dtype_,
                          .x = from.data(),
                          .rows = tokens,
                          .num_rows = num_tokens,
                          .hidden = config_.hidden_size,
                          .out = to.data()},
                         stream);
  };
  gather(hidden_, inner_);
  gather(residual_, attention_);
  norm(inner_.data(), attention_.data(), final_norm_, num_tokens, inner_.data(), stream);
  clock.mark(times_.other_seconds);
  linear(head(), inner_.data(), num_tokens, logits(), DType::kF32, nullptr, stream);
  clock.mark(times_.linear_seconds);
}

}  // namespace zipage
