// Rotary position embedding: frequencies with their scaling (linear, dynamic, llama3, yarn), and
// the table of cos and sin that the backend rotates with. Computed in double.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace zipage {

struct ModelConfig;

enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn };
const char* to_string(RopeScaling scaling);

struct RopeConfig {
  double theta = 10000.0;
  // Even, at most head_dim: the leading dimensions of a head that rotate.
  int32_t rotary_dim = 0;
  RopeScaling scaling = RopeScaling::kNone;
  // linear, dynamic, llama3, yarn.
  double factor = 1.0;
  // llama3, yarn.
  int64_t original_max_position_embeddings = 0;
  // llama3
  double low_freq_factor = 1.0;
  // llama3
  double high_freq_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  // yarn
  double beta_slow = 1.0;
  // yarn: whole dimensions bound the ramp.
  bool truncate = true;
  // yarn: multiplies cos and sin.
  double attention_factor = 1.0;
  // Divides frequency i, after the scaling; empty, or [rotary_dim / 2] (GGUF's rope_freqs).
  std::vector<float> frequency_divisors;
};

// The angle of dimension pair i at position p is p * frequencies[i]: [rotary_dim / 2].
// `max_positions` matters to dynamic scaling alone: its base grows once it exceeds the model's
// max_position_embeddings, and then holds for every position, as if one call computed them all.
std::vector<double> rope_frequencies(const ModelConfig& config, int64_t max_positions);

// [max_positions, rotary_dim]: cos of the rotary_dim / 2 angles, then their sin, both times the
// attention factor. Computed in double.
std::vector<float> rope_table(const ModelConfig& config, int64_t max_positions);

}  // namespace zipage
