// What the simulations share. Internal to schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/simulate.h"

namespace zipage {

// Means over the steps.
class StepMeter {
 public:
  void step(int64_t num_running, bool steady, int64_t num_blocks_used) {
    ++steps_;
    running_ += num_running;
    blocks_used_ += num_blocks_used;
    peak_ = std::max(peak_, num_running);
    if (!steady) return;
    ++steady_steps_;
    steady_running_ += num_running;
  }
  void report(int32_t num_blocks, SimulationResult& result) const {
    const auto mean = [](int64_t sum, int64_t count) {
      return count > 0 ? static_cast<double>(sum) / static_cast<double>(count) : 0.0;
    };
    result.steps = steps_;
    result.steady_steps = steady_steps_;
    result.peak_running = static_cast<int32_t>(peak_);
    result.mean_running = mean(running_, steps_);
    result.mean_running_steady = mean(steady_running_, steady_steps_);
    result.mean_blocks_used = mean(blocks_used_, steps_) / num_blocks;
    result.recomputed_fraction = mean(result.recomputed_tokens, result.output_tokens);
  }

 private:
  int64_t steps_ = 0, running_ = 0, blocks_used_ = 0, peak_ = 0, steady_steps_ = 0,
          steady_running_ = 0;
};

int32_t query_slots(const SimulationOptions& options);
SimulationResult simulate_published(const SimulationOptions& options,
                                    const std::vector<TraceRequest>& trace);

}  // namespace zipage
