// What a run of the load generator comes to.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/load_dataset.h"
#include "cli/load_generator.h"

namespace zipage::cli {

// Of a list of values; all 0 for an empty one. Percentiles interpolate between neighbours.
struct Distribution {
  double mean = 0, std = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Distribution distribution(std::vector<double> values);

// Milliseconds that a good request does not exceed.
struct Goodput {
  std::optional<double> ttft, tpot, e2el;
  bool wanted() const { return ttft || tpot || e2el; }
};
// "ttft:200", "tpot:50", "e2el:1000" each. Throws kInvalidArgument naming --goodput.
Goodput parse_goodput(const std::vector<std::string>& words);

struct LoadReport {
  int64_t completed = 0, failed = 0, refused = 0;  // refused: 429 or 503
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t good = 0;
  double seconds = 0, cpu_seconds = 0;
  int64_t peak_in_flight = 0, slow_readers_dropped = 0;
  bool interrupted = false;
  Distribution ttft, tpot, itl, e2el;       // ms
  std::map<std::string, int64_t> failures;  // by reason
  std::map<int, int64_t> statuses;          // of HTTP; 0: no answer
  Distribution retry_after;                 // seconds, of refusals that name it
  int64_t refused_without_retry_after = 0;
  // Against --expect.
  int64_t compared = 0, different = 0;
  std::vector<std::string> differences;  // the first few
};

LoadReport make_report(const LoadRun& run, const Goodput& goodput);
// Fills `compared` and what follows it.
void compare_answers(const LoadRun& run,
                     const std::vector<LoadRequest>& requests,
                     const std::unordered_map<std::string, ExpectedAnswer>& expected,
                     LoadReport& report);
// The names of vLLM's result files where it has them.
boost::json::object report_json(const LoadReport& report, const Goodput& goodput);
std::string report_text(const LoadReport& report, const Goodput& goodput);

}  // namespace zipage::cli
