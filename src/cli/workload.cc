#include "cli/workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

#include "cli/output_file.h"

namespace zipage::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

double since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// JSON numbers with six digits at most behind the point: reports are read by people too.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

}  // namespace

WorkloadRunner::WorkloadRunner(Engine& engine, std::string title, int64_t total_requests)
    : engine_(engine), bar_(std::move(title)), total_requests_(total_requests) {}

WorkloadNumbers WorkloadRunner::run(const std::function<int64_t()>& done,
                                    const std::function<bool()>& stop) {
  InterruptGuard interrupt;
  WorkloadNumbers n;
  const EngineStats before = engine_.stats();
  const auto start = SteadyClock::now();
  double running_seconds = 0;
  double last = 0;
  EngineStats previous = before;
  int64_t steps_since_prompt = 0;
  while (engine_.step()) {
    const EngineStats s = engine_.stats();
    const double now = since(start);
    const int64_t running = s.num_running + s.num_compressing;
    running_seconds += static_cast<double>(running) * (now - last);
    // On a GPU a call of step() launches one step and waits for the one before.
    steps_since_prompt = s.prompt_tokens > previous.prompt_tokens ? 0 : steps_since_prompt + 1;
    if (steps_since_prompt >= 2) {
      auto& steps = s.num_compressing + previous.num_compressing > 0 ? n.decode_beside_compression
                                                                     : n.decode_alone;
      ++steps.count;
      steps.seconds += now - last;
    }
    previous = s;
    last = now;
    n.peak_running = std::max(n.peak_running, running);
    if (interrupt.interrupted()) {
      n.interrupted = true;
      break;
    }
    if (stop && stop()) break;
    const double used = 1.0 - static_cast<double>(s.num_free_blocks) /
                                  static_cast<double>(std::max<int64_t>(1, s.num_blocks));
    const auto generated = static_cast<double>(s.generation_tokens - before.generation_tokens);
    bar_.update(fmt::format("{:.0f} tok/s, {} running, {} waiting, KV {:.0f}%",
                            generated / std::max(now, 1e-9), running, s.num_waiting, 100 * used),
                done(), total_requests_);
  }
  bar_.finish();
  const EngineStats after = engine_.stats();
  n.seconds = since(start);
  n.output_tokens = after.generation_tokens - before.generation_tokens;
  n.prompt_tokens = after.prompt_tokens - before.prompt_tokens;
  n.steps = after.steps - before.steps;
  n.mean_running = last > 0 ? running_seconds / last : 0;
  n.preemptions = after.preemptions - before.preemptions;
  n.recomputed_tokens = after.recomputed_tokens - before.recomputed_tokens;
  n.compressions = after.compressions - before.compressions;
  n.kv_bytes = engine_.info().kv_bytes;
  n.kv_entries_read = after.kv_entries_read - before.kv_entries_read;
  n.other_seconds = after.other_seconds - before.other_seconds;
  n.schedule_seconds = after.schedule_seconds - before.schedule_seconds;
  n.attention_seconds = after.attention_seconds - before.attention_seconds;
  n.linear_seconds = after.linear_seconds - before.linear_seconds;
  n.sample_seconds = after.sample_seconds - before.sample_seconds;
  n.compression_seconds = after.compression_seconds - before.compression_seconds;
  n.step_seconds = after.step_seconds - before.step_seconds;
  return n;
}

void add_numbers(const WorkloadNumbers& n,
                 boost::json::object& report,
                 const WorkloadNumbers* profile) {
  report["output_tokens"] = n.output_tokens;
  report["prompt_tokens"] = n.prompt_tokens;
  report["seconds"] = rounded(n.seconds);
  report["tokens_per_second"] = rounded(n.tokens_per_second());
  report["mean_running"] = rounded(n.mean_running);
  report["peak_running"] = n.peak_running;
  report["preemptions"] = n.preemptions;
  report["recomputed_tokens"] = n.recomputed_tokens;
  report["compressions"] = n.compressions;
  report["kv_bytes"] = n.kv_bytes;
  report["steps"] = n.steps;
  report["partial"] = n.interrupted;
  const auto of_steps = [](const WorkloadNumbers::Steps& steps) {
    const double count = static_cast<double>(std::max<int64_t>(steps.count, 1));
    return boost::json::object{{"steps", steps.count},
                               {"ms", rounded(1e3 * steps.seconds / count)}};
  };
  report["decode_steps"] = {{"alone", of_steps(n.decode_alone)},
                            {"beside_compression", of_steps(n.decode_beside_compression)}};
  const WorkloadNumbers& parts = profile != nullptr ? *profile : n;
  const auto ms = [](double seconds, int64_t steps) {
    return rounded(1e3 * seconds / static_cast<double>(std::max<int64_t>(steps, 1)));
  };
  const double total = ms(n.step_seconds, n.steps);
  const double attention = ms(parts.attention_seconds, parts.steps);
  const double linear = ms(parts.linear_seconds, parts.steps);
  const double sample = ms(parts.sample_seconds, parts.steps);
  const double other = ms(parts.other_seconds, parts.steps);
  report["ms_per_step"] = {
      {"total", total},
      {"attention", attention},
      {"linear", linear},
      {"sample", sample},
      {"schedule", ms(n.schedule_seconds, n.steps)},
      {"compression", ms(parts.compression_seconds, parts.steps)},
      {"other", other},
      {"idle", rounded(std::max(0.0, total - attention - linear - sample - other))}};
}

void write_json(const std::string& path, const boost::json::object& report) {
  write_file("--json", path, boost::json::serialize(report) + "\n");
}

}  // namespace zipage::cli
