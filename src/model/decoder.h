// Decoder: the forward pass of a pre-norm decoder. Llama, Qwen2, Qwen3, Mistral and their relatives
// differ by ModelConfig alone. Owns the weights in the backend's layout and the activations.
//
//   decoder.forward(batch, kv, nullptr, stream);
//   // decoder.logits() now holds (or will hold, in stream order) [num_logits, vocab].
//
// Thread: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace zipage {

// Seconds per part of a step: of host time where ops run at once (a CPU's main stream), of device
// time while profiling.
struct ForwardTimes {
  double attention_seconds = 0;
  double linear_seconds = 0;
  double other_seconds = 0;
};

// Largest batch that the activations hold.
struct DecoderLimits {
  // Tokens per step.
  int32_t max_tokens = 0;
  // Rows of lm_head.
  int32_t max_logits = 0;
  int32_t max_positions = 0;
  size_t attention_workspace_bytes = 0;
};

// Owns the weights in the backend's layout and the activations. Thread: the engine's.
class Decoder {
 public:
  using Progress = std::function<void(int done, int total)>;
  // Packs the weights, giving each layer's pages back as soon as the backend has its own copy;
  // `progress` (may be empty) is called once a layer.
  Decoder(Backend& backend,
          const ModelConfig& config,
          ModelWeights weights,
          const DecoderLimits& limits,
          const Progress& progress);

  // Computes the batch, writes its keys, values and kept queries to `kv`, and the logits of
  // batch.logits_tokens to logits() [num_logits, vocab] f32. previous_tokens: see EmbedArgs.
  void forward(const StepBatch& batch,
               const PagedKvView& kv,
               const int32_t* previous_tokens,
               Stream& stream);

  // Writes to logits() those of other tokens of the last forward()'s batch instead: tokens
  // [num_tokens], at most max_logits, on the device. Before the next forward().
  void compute_logits(const int32_t* tokens, int32_t num_tokens, Stream& stream);

  float* logits() const { return logits_.as<float>(); }
  const float* rope_cos_sin() const { return rope_.as<float>(); }
  size_t weight_bytes() const { return weight_bytes_; }
  // Of the weights that every step reads whole: all but an embedding that is not the lm_head too.
  size_t step_weight_bytes() const { return weight_bytes_ - (lm_head_ ? embedding_->bytes() : 0); }
  static size_t activation_bytes(const ModelConfig& config,
                                 DType dtype,
                                 const DecoderLimits& limits);
  const ForwardTimes& times() const { return times_; }

  // While on, forward() puts events between its parts; take_profile() adds up the last forward(),
  // once it is done.
  void set_profiling(bool on) { profiling_ = on; }
  void take_profile();

 private:
  struct Layer {
    std::unique_ptr<LinearWeight> qkv, o, gate_up, down;
    // [hidden] f32.
    Buffer input_norm, post_norm;
    // [head_dim] f32, or empty.
    Buffer q_norm, k_norm;
  };
  class Clock;

  Buffer upload_norm(const HostTensor& tensor);
  void layer_forward(const Layer& layer,
                     int32_t index,
                     const StepBatch& batch,
                     const PagedKvView& kv,
                     Stream& stream);
  const LinearWeight& head() const { return lm_head_ ? *lm_head_ : *embedding_; }
  // `next`: the weight of the product behind this one, or null.
  void linear(const LinearWeight& weight,
              const void* x,
              int32_t num_tokens,
              void* out,
              DType out_dtype,
              const LinearWeight* next,
              Stream& stream);
  void norm(
      void* x, void* residual, const Buffer& weight, int32_t num_tokens, void* out, Stream& stream);

  Backend& backend_;
  const ModelConfig config_;
  const DType dtype_;
  // lm_head_ null: tied.
  std::unique_ptr<LinearWeight> embedding_, lm_head_;
  std::vector<Layer> layers_;
  Buffer final_norm_;
  // [max_positions, rotary_dim] f32.
  Buffer rope_;
  // [max_tokens, hidden]
  Buffer residual_;
  // [max_tokens, hidden]
  Buffer hidden_;
  // [max_tokens, max(qkv, 2 * intermediate)]
  Buffer wide_;
  // [max_tokens, max(q, intermediate, hidden)]
  Buffer inner_;
  // [max_tokens, max(q, hidden)]
  Buffer attention_;
  // [max_logits, vocab] f32.
  Buffer logits_;
  Buffer workspace_;
  size_t weight_bytes_ = 0;
  ForwardTimes times_;
  struct Mark {
    std::unique_ptr<Event> event;
    // What ends here; null: a beginning.
    double* part;
  };
  void mark_profile(double* part, Stream& stream);
  bool profiling_ = false;
  // Of the last forward(); later ones reuse the events.
  std::vector<Mark> marks_;
  size_t num_marks_ = 0;
};

}  // namespace zipage
