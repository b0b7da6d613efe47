// One engine under a random load, from its start to its end.
#pragma once

#include <cstdint>
#include <string>

#include "support/tiny_model.h"

namespace zipage::testing {

struct SoakTotals {
  int64_t episodes = 0, requests = 0, refused = 0, aborted = 0, failed_jobs = 0, compared = 0;
  int64_t steps = 0, tokens = 0, compressions = 0, preemptions = 0, recomputed = 0;
  int64_t swapped_out = 0, prefix_hits = 0, most_compressing = 0;
  void add(const SoakTotals& other);
  std::string line() const;
  // The name of a count that is 0 although such a run should have met it; empty: none.
  std::string missing(bool swaps) const;
};

struct SoakSettings {
  uint64_t seed = 0;  // decides everything but the timing of threads
  bool swap = true;
  bool threads = false;  // the engine runs on a thread of its own, clients on others
};

// Throws std::runtime_error that says what went wrong: a request that was lost or answered
// otherwise than alone, a broken invariant, a leaked block, an engine that hangs.
SoakTotals run_episode(const TinyModel& model, const SoakSettings& settings);

}  // namespace zipage::testing
