#include "compress/score_ops.h"

#include <algorithm>

#include "base/check.h"

namespace zipage {

float* ScoreOps::next_row() {
  ZIPAGE_CHECK_LT(num_rows_used_, scratch_.rows.size());
  return scratch_.rows[num_rows_used_++];
}

float* ScoreOps::attention() {
  float* s = next_row();
  backend_.attention_score({args_, model_.attention_scale, s, scratch_.workspace}, stream_);
  return s;
}

void ScoreOps::global(float* s) {
  const auto decay = static_cast<float>(options_.score_decay);
  backend_.global_score({args_, decay, options_.score_reduce, s}, stream_);
  new_f_ = s;
}

float* ScoreOps::max_pool(float* s) {
  if (options_.pooling == Pooling::kNever) return s;
  float* pooled = next_row();
  const bool only_first = options_.pooling == Pooling::kFirst;
  backend_.max_pool({args_, options_.pooling_width, only_first, s, pooled}, stream_);
  return pooled;
}

float* ScoreOps::redundancy() {
  float* r = next_row();
  backend_.redundancy(
      {args_, options_.redundancy, static_cast<float>(options_.similarity_threshold),
       static_cast<float>(options_.redundancy_temperature), options_.derotate, model_.rope_cos_sin,
       model_.rotary_dim, r, scratch_.workspace},
      stream_);
  return r;
}

void ScoreOps::f_of_last_window() {
  float* f = next_row();
  backend_.peak_update(
      {&windows_, args_.kv, args_.layer_begin, args_.num_layers, model_.attention_scale,
       static_cast<float>(options_.attention_half_life), f, args_.capacity, scratch_.workspace},
      stream_);
  new_f_ = f;
}

float* ScoreOps::normalized_f() {
  float* s = next_row();
  backend_.normalized_history({args_, new_f_, s}, stream_);
  return s;
}

float* ScoreOps::center_redundancy() {
  float* r = next_row();
  backend_.center_redundancy({args_, static_cast<float>(options_.redundancy_temperature),
                              model_.rope_cos_sin, model_.rotary_dim, r, scratch_.workspace},
                             stream_);
  return r;
}

float* ScoreOps::recency() {
  float* score = next_row();
  backend_.plain_score({args_, KvPolicy::kRecency, score}, stream_);
  return score;
}

float* ScoreOps::random() {
  float* score = next_row();
  backend_.plain_score({args_, KvPolicy::kRandom, score}, stream_);
  return score;
}

float* ScoreOps::combine(float* s, float* r) {
  if (r == nullptr && s != new_f_) return s;
  float* score = r != nullptr ? r : next_row();
  const auto weight = static_cast<float>(*options_.score_weight);
  backend_.combine({args_, options_.combine, weight, s, r, score}, stream_);
  return score;
}

void ScoreOps::protect(float* score) {
  const int32_t newest = std::max(options_.window_size, *options_.protect_newest);
  backend_.protect({args_, newest, options_.sink_tokens, options_.protect_prompt, score}, stream_);
}

}  // namespace zipage
