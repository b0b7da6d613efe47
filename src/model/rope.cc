#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "model/config.h"

namespace zipage {
namespace {

// theta^(-2i / rotary_dim)
std::vector<double> plain_frequencies(double theta, int32_t rotary_dim) {
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim) / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

// NTK-aware: the base grows with the length, so that the slowest pair spans it.
double dynamic_theta(const RopeConfig& rope, int64_t trained, int64_t max_positions) {
  const double length = static_cast<double>(std::max(trained, max_positions));
  const double stretch = rope.factor * length / static_cast<double>(trained) - (rope.factor - 1.0);
  const double dim = rope.rotary_dim;
  return rope.theta * std::pow(stretch, dim / (dim - 2.0));
}

// Llama 3: long waves are divided by `factor`, short ones kept, those between blended.
void scale_llama3(const RopeConfig& rope, std::vector<double>& frequencies) {
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  for (double& frequency : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < original / rope.high_freq_factor) continue;
    if (wavelength > original / rope.low_freq_factor) {
      frequency /= rope.factor;
      continue;
    }
    const double smooth = (original / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    frequency = (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
  }
}

// YaRN: pairs that turn more than beta_fast times over the trained length keep their frequency,
// those that turn less than beta_slow times are divided by `factor`, with a linear ramp between.
void scale_yarn(const RopeConfig& rope, std::vector<double>& frequencies) {
  const double dim = rope.rotary_dim;
  const auto pair_with_turns = [&](double turns) {
    const double original = static_cast<double>(rope.original_max_position_embeddings);
    return dim * std::log(original / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_with_turns(rope.beta_fast);
  double high = pair_with_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1.0 - ramp) + ramp / rope.factor;
  }
}

}  // namespace

const char* to_string(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kDynamic:
      return "dynamic";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
  }
  return "unknown";
}

std::vector<double> rope_frequencies(const ModelConfig& config, int64_t max_positions) {
  const RopeConfig& rope = config.rope;
  ZIPAGE_CHECK_EQ(rope.rotary_dim % 2, 0);
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamic) {
    theta = dynamic_theta(rope, config.max_position_embeddings, max_positions);
  }
  std::vector<double> frequencies = plain_frequencies(theta, rope.rotary_dim);
  if (rope.scaling == RopeScaling::kLinear) {
    for (double& frequency : frequencies) frequency /= rope.factor;
  } else if (rope.scaling == RopeScaling::kLlama3) {
    scale_llama3(rope, frequencies);
  } else if (rope.scaling == RopeScaling::kYarn) {
    scale_yarn(rope, frequencies);
  }
  if (!rope.frequency_divisors.empty()) {
    ZIPAGE_CHECK_EQ(rope.frequency_divisors.size(), frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= rope.frequency_divisors[i];
  }
  return frequencies;
}

std::vector<float> rope_table(const ModelConfig& config, int64_t max_positions) {
  const std::vector<double> frequencies = rope_frequencies(config, max_positions);
  const size_t half = frequencies.size();
  const double scale = config.rope.attention_factor;
  std::vector<float> table(static_cast<size_t>(max_positions) * 2 * half);
  for (int64_t position = 0; position < max_positions; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * half;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      row[i] = static_cast<float>(std::cos(angle) * scale);
      row[half + i] = static_cast<float>(std::sin(angle) * scale);
    }
  }
  return table;
}

}  // namespace zipage
