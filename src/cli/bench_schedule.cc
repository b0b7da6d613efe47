// zipage bench schedule: a trace through the scheduler alone.
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/output_file.h"
#include "cli/workload.h"
#include "schedule/simulate.h"

namespace zipage::cli {
namespace {

struct ScheduleCommand {
  SimulationOptions options;
  std::string trace_path, json_path, kv_policy = "peak";

  int run() {
    check_writable("--json", json_path);
    const std::vector<TraceRequest> trace = read_trace(trace_path);
    CompressionOptions& compression = options.compression;
    const auto policy = parse_kv_policy(kv_policy);
    if (!policy.ok()) fail_invalid("--kv-policy: {}", policy.status().message());
    compression.kv_policy = policy.value();
    compression.kv_budget = options.max_blocks_per_seq > 1
                                ? int64_t{options.max_blocks_per_seq - 1} * options.block_size
                                : kFullKv;
    compression = value_or_fail(compression.resolved(options.block_size));
    boost::json::object report;
    std::vector<std::vector<std::string>> rows = {{"scheduler", "mean running", "steady", "peak",
                                                   "recomputed", "preemptions", "blocked",
                                                   "compressions", "steps"}};
    for (const auto scheduler : {SimulatedScheduler::kConstrained, SimulatedScheduler::kHybrid,
                                 SimulatedScheduler::kPublished}) {
      options.scheduler = scheduler;
      const SimulationResult r = simulate(options, trace);
      rows.push_back({to_string(scheduler), fmt::format("{:.1f}", r.mean_running),
                      fmt::format("{:.1f}", r.mean_running_steady), std::to_string(r.peak_running),
                      fmt::format("{:.2f} %", 100 * r.recomputed_fraction),
                      std::to_string(r.preemptions), std::to_string(r.blocked_steps),
                      std::to_string(r.compressions), std::to_string(r.steps)});
      report[to_string(scheduler)] = {{"requests", r.requests},
                                      {"steps", r.steps},
                                      {"output_tokens", r.output_tokens},
                                      {"computed_tokens", r.computed_tokens},
                                      {"recomputed_tokens", r.recomputed_tokens},
                                      {"recomputed_fraction", r.recomputed_fraction},
                                      {"preemptions", r.preemptions},
                                      {"compressions", r.compressions},
                                      {"blocked_steps", r.blocked_steps},
                                      {"prefix_hit_tokens", r.prefix_hit_tokens},
                                      {"peak_running", r.peak_running},
                                      {"mean_running", r.mean_running},
                                      {"mean_running_steady", r.mean_running_steady},
                                      {"steady_steps", r.steady_steps},
                                      {"seconds", r.seconds}};
    }
    std::printf("%s", format_table(rows).c_str());
    if (!json_path.empty()) write_json(json_path, report);
    return kExitOk;
  }
};

}  // namespace

void add_bench_schedule_command(CLI::App& bench, Action& action) {
  auto command = std::make_shared<ScheduleCommand>();
  SimulationOptions& o = command->options;
  CLI::App* sub =
      bench.add_subcommand("schedule", "Replay a trace through the scheduler, without tensors");
  sub->add_option("--trace", command->trace_path,
                  "JSON lines with prompt_tokens, output_tokens and optionally age")
      ->required();
  sub->add_option("--num-blocks", o.num_blocks, "KV blocks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--block-size", o.block_size, "Tokens a block")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--max-blocks-per-seq", o.max_blocks_per_seq, "N_max (0: full KV)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_option("--max-num-seqs", o.max_num_seqs, "Most running requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--max-num-batched-tokens", o.max_num_batched_tokens, "Most tokens a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--shared-prefix", o.shared_prefix_tokens, "Tokens that every prompt begins with")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--kv-policy", command->kv_policy,
                  "Decides what compression needs of the schedule")
      ->capture_default_str();
  sub->add_option("--json", command->json_path, "Write the numbers to this file");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
