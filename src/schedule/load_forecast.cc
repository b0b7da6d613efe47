#include "schedule/load_forecast.h"

#include <algorithm>
#include <cmath>

namespace zipage {

LoadForecast::LoadForecast(int32_t block_size, int32_t num_periods)
    : block_size_(block_size),
      asked_(static_cast<size_t>(std::max(num_periods, 1)), 0),
      smoothing_(1.0 / (8.0 * block_size)) {}

void LoadForecast::step(int32_t num_finished, int32_t num_released_blocks) {
  finish_rate_ += smoothing_ * (num_finished - finish_rate_);
  blocks_rate_ += smoothing_ * (num_released_blocks - blocks_rate_);
}

void LoadForecast::begin() { std::fill(asked_.begin(), asked_.end(), 0); }

void LoadForecast::grows(int32_t num_blocks, int32_t first_steps) {
  size_t period = static_cast<size_t>(std::max(first_steps, 0) / block_size_);
  for (int32_t i = 0; i < num_blocks && period < asked_.size(); ++i) ++asked_[period++];
}

void LoadForecast::asks(int32_t num_blocks, int32_t steps) {
  const size_t period = static_cast<size_t>(std::max(steps, 0) / block_size_);
  if (period < asked_.size()) asked_[period] += num_blocks;
}

bool LoadForecast::fits(int32_t num_free) {
  const bool trusts =
      static_cast<double>(num_lost_) <= kTolerance * static_cast<double>(num_computed_);
  const double blocks_each = finish_rate_ > 0 ? blocks_rate_ / finish_rate_ : 0;
  double asked = 0;
  for (size_t period = 0; period < asked_.size(); ++period) {
    asked += asked_[period];
    // Demand of a period may come at its start: only what is returned before that counts.
    const double finished = trusts ? finish_rate_ * static_cast<double>(period) * block_size_ : 0;
    const double returned = std::max(0.0, finished - std::sqrt(finished)) * blocks_each;
    if (asked > num_free + returned) return false;
  }
  return true;
}

}  // namespace zipage
