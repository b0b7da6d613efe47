// Runs a set of requests to their end, with a bar, and measures: what eval and bench share.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zipage/engine.h"

#include "cli/console.h"

namespace zipage::cli {

// What a run of an engine did. Times are wall seconds.
struct WorkloadNumbers {
  double seconds = 0;
  int64_t output_tokens = 0, prompt_tokens = 0, steps = 0;
  double mean_running = 0;  // over steps, weighted by their time
  int64_t peak_running = 0;
  int64_t kv_entries_read = 0;
  int64_t preemptions = 0, recomputed_tokens = 0, compressions = 0;
  int64_t kv_bytes = 0;
  bool interrupted = false;
  double schedule_seconds = 0, attention_seconds = 0, linear_seconds = 0, sample_seconds = 0,
         compression_seconds = 0, step_seconds = 0;

  double other_seconds = 0;
  // Steps without a prompt in them or before them, by whether a compression was in flight.
  struct Steps {
    int64_t count = 0;
    double seconds = 0;
    double milliseconds() const {
      return count > 0 ? 1e3 * seconds / static_cast<double>(count) : 0;
    }
  };
  Steps decode_alone, decode_beside_compression;

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
};

// Difference of the engine's totals over a run.
class WorkloadRunner {
 public:
  WorkloadRunner(Engine& engine, std::string title, int64_t total_requests);
  // Steps until the engine is idle, `stop` says so, or Ctrl-C. `done` counts finished requests for
  // the bar.
  WorkloadNumbers run(const std::function<int64_t()>& done, const std::function<bool()>& stop = {});

 private:
  Engine& engine_;
  ProgressBar bar_;
  const int64_t total_requests_;
};

// Adds the numbers under the names of the JSON reports. On a GPU the parts of a step come from
// `profile`, a run with Engine::set_profiling(), and what they leave of a step's wall time is idle;
// null: they were timed in the run itself.
void add_numbers(const WorkloadNumbers& numbers,
                 boost::json::object& report,
                 const WorkloadNumbers* profile = nullptr);
// Writes the report of --json; throws Error naming the file when it cannot.
void write_json(const std::string& path, const boost::json::object& report);

}  // namespace zipage::cli
