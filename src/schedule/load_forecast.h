// LoadForecast: will the free blocks last if another sequence is admitted (method.md 5, watermark)?
// Adds up the blocks that running sequences will ask for over the next steps, against those that
// are free and those that finishing sequences are expected to return.
//
// Internal to schedule. Thread: the scheduler's.
#pragma once

#include <cstdint>
#include <vector>

namespace zipage {

// Demand is exact while nobody finishes, since a sequence grows by one token a step. What finishing
// will return is the lower bound (one standard deviation) of a Poisson process with the rate seen
// lately, so that little is recomputed.
class LoadForecast {
 public:
  // num_periods: block lengths looked ahead.
  LoadForecast(int32_t block_size, int32_t num_periods);

  // Once a step.
  void step(int32_t num_finished, int32_t num_released_blocks);
  // Preemptions threw away this many of the tokens computed; above `kTolerance` nothing is expected
  // from finishing.
  void lost(int64_t num_tokens) { num_lost_ += num_tokens; }
  void computed(int64_t num_tokens) { num_computed_ += num_tokens; }

  // A new question.
  void begin();
  // A sequence will ask for num_blocks more: the first after first_steps steps, then one every
  // block_size.
  void grows(int32_t num_blocks, int32_t first_steps);
  // ... for num_blocks at once, after that many steps.
  void asks(int32_t num_blocks, int32_t steps);
  // Whether num_free blocks suffice at every moment.
  bool fits(int32_t num_free);
  // Blocks asked for within the next block_size steps.
  int32_t soon() const { return asked_.front(); }

 private:
  // Of the tokens computed.
  static constexpr double kTolerance = 0.004;

  int32_t block_size_;
  // By period.
  std::vector<int32_t> asked_;
  // Tokens per step.
  double finish_rate_ = 0;
  // Tokens per step.
  double blocks_rate_ = 0;
  double smoothing_;
  int64_t num_lost_ = 0, num_computed_ = 0;
};

}  // namespace zipage
