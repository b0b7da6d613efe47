// zipage bench throughput MODEL --trace FILE: how fast a set of requests is answered.
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <random>

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/output_file.h"
#include "cli/workload.h"
#include "schedule/simulate.h"

namespace zipage::cli {
namespace {

// Bytes that a step cannot do without, and the bandwidth that its time makes of them: the weights
// once, and the keys and values that its rows attend to.
void add_traffic(const WorkloadNumbers& n, const EngineInfo& info, boost::json::object& report) {
  const double steps = static_cast<double>(std::max<int64_t>(n.steps, 1));
  const double entry_bytes =
      static_cast<double>(info.kv_bytes) / static_cast<double>(info.num_blocks) / info.block_size;
  const double bytes = static_cast<double>(info.step_weight_bytes) +
                       entry_bytes * static_cast<double>(n.kv_entries_read) / steps;
  report["num_blocks"] = info.num_blocks;
  report["mean_batch"] = static_cast<double>(n.output_tokens) / steps;
  report["bytes_per_step"] = std::round(bytes);
  report["gb_per_second"] = n.step_seconds > 0 ? bytes * steps / n.step_seconds / 1e9 : 0.0;
}

struct ThroughputCommand {
  EngineFlags engine;
  std::string trace_path, json_path;
  int32_t input_len = 64, output_len = 512;
  int64_t num_prompts = 64, limit = 0, warmup_steps = 0, steps = 0, profile_steps = 32;

  std::vector<TraceRequest> rows() const {
    if (trace_path.empty()) {
      return std::vector<TraceRequest>(static_cast<size_t>(num_prompts),
                                       TraceRequest{input_len, output_len, 0});
    }
    std::vector<TraceRequest> trace = read_trace(trace_path);
    if (limit > 0 && static_cast<int64_t>(trace.size()) > limit)
      trace.resize(static_cast<size_t>(limit));
    return trace;
  }

  // Where the requests are, as their callbacks tell.
  struct Progress {
    int64_t finished = 0;
    int64_t trigger = 0;  // tokens at which a capped request is first compressed; 0: no cap
    int64_t unripe = 0;   // aged requests before that
    Status error;
    std::mt19937_64 random{1};
  };

  static void submit(Engine& model, const TraceRequest& row, size_t index, Progress& progress) {
    Request request;
    // Requests that are `age` tokens into their output when the clock starts bring those along as
    // prompt.
    request.prompt_token_ids.resize(static_cast<size_t>(row.prompt_tokens + row.age));
    for (int32_t& id : request.prompt_token_ids) {
      id = static_cast<int32_t>(progress.random() % static_cast<uint64_t>(std::min<int64_t>(
                                                        model.info().vocab_size, 256)));
    }
    const auto length = static_cast<int64_t>(request.prompt_token_ids.size());
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.detokenize = false;
    request.sampling.max_tokens = row.output_tokens - row.age;
    // Ripe with its first output when the prompt alone reaches the trigger, and with the token
    // after the trigger otherwise.
    int64_t ripens_in = row.age > 0 && progress.trigger > 0
                            ? std::max<int64_t>(1, progress.trigger - length + 2)
                            : 0;
    if (ripens_in > 0) ++progress.unripe;
    auto id = model.submit(std::move(request),
                           [&progress, ripens_in](const RequestOutput& output) mutable {
                             if (ripens_in > 0 && (--ripens_in == 0 || output.finished())) {
                               ripens_in = 0;
                               --progress.unripe;
                             }
                             if (output.finished()) ++progress.finished;
                             if (output.finish_reason == FinishReason::kError)
                               progress.error = output.error;
                           });
    if (!id.ok()) fail_invalid("trace row {}: {}", index + 1, id.status().message());
  }

  int run() {
    check_writable("--json", json_path);
    const std::vector<TraceRequest> trace = rows();
    const auto model = engine.create_engine();
    Progress progress;
    progress.trigger = int64_t{model->info().max_blocks_per_seq} * model->info().block_size;
    for (size_t i = 0; i < trace.size(); ++i) submit(*model, trace[i], i, progress);
    WorkloadRunner runner(*model, "Requests", static_cast<int64_t>(trace.size()));
    const auto finished = [&] { return progress.finished; };
    if (steps > 0) {
      // The steady state: every request that was under way when the clock started has met its first
      // compression.
      const int64_t warm = model->stats().steps + warmup_steps;
      const WorkloadNumbers w = runner.run(
          finished, [&] { return progress.unripe == 0 && model->stats().steps >= warm; });
      if (w.interrupted) return kExitInterrupted;
    }
    const int64_t end = model->stats().steps + steps;
    const WorkloadNumbers n =
        steps > 0 ? runner.run(finished, [&] { return model->stats().steps >= end; })
                  : runner.run(finished);
    if (!progress.error.ok()) return report(progress.error);
    const int64_t done = progress.finished;
    boost::json::object out;
    out["requests"] = static_cast<int64_t>(trace.size());
    out["model"] = model->info().model_name;
    out["device"] = model->info().device;
    // On a GPU the parts of a step are timed in steps of their own, which run op by op.
    WorkloadNumbers profile;
    const bool profiled = steps > 0 && profile_steps > 0 && model->info().device_kind != "cpu";
    if (profiled) {
      model->set_profiling(true);
      const int64_t last = model->stats().steps + profile_steps;
      profile = runner.run(finished, [&] { return model->stats().steps >= last; });
      model->set_profiling(false);
    }
    add_numbers(n, out, profiled ? &profile : nullptr);
    add_traffic(n, model->info(), out);
    const auto& ms = out["ms_per_step"].as_object();
    std::printf(
        "%lld requests, %lld output tokens in %.2f s: %.1f tok/s, %.1f running, %lld preemptions, "
        "%lld compressions\n",
        static_cast<long long>(done), static_cast<long long>(n.output_tokens), n.seconds,
        n.tokens_per_second(), n.mean_running, static_cast<long long>(n.preemptions),
        static_cast<long long>(n.compressions));
    std::printf("ms a step: %.3f", ms.at("total").as_double());
    for (const auto& [part, value] : ms) {
      if (part != "total")
        std::printf(", %.*s %.3f", static_cast<int>(part.size()), part.data(), value.as_double());
    }
    std::printf("\n");
    if (const auto& alone = n.decode_alone, &beside = n.decode_beside_compression;
        alone.count > 0 && beside.count > 0) {
      std::printf("decode alone: %.3f ms a step (%lld), beside a compression: %.3f (%lld)\n",
                  alone.milliseconds(), static_cast<long long>(alone.count), beside.milliseconds(),
                  static_cast<long long>(beside.count));
    }
    std::printf("%.2f GB a step (weights, and keys and values in use), %.0f GB/s\n",
                out["bytes_per_step"].as_double() / 1e9, out["gb_per_second"].as_double());
    if (!json_path.empty()) write_json(json_path, out);
    return n.interrupted ? kExitInterrupted : kExitOk;
  }
};

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the engine, the scheduler or a server");
  bench->require_subcommand(1);
  add_bench_latency_command(*bench, action);
  add_bench_schedule_command(*bench, action);
  add_bench_serve_command(*bench, action);
  auto command = std::make_shared<ThroughputCommand>();
  CLI::App* sub =
      bench->add_subcommand("throughput", "Output tokens a second over a trace or equal requests");
  sub->add_option("--trace", command->trace_path,
                  "JSON lines with prompt_tokens, output_tokens and optionally age");
  sub->add_option("--num-prompts", command->num_prompts, "Without a trace: requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--input-len", command->input_len, "Without a trace: prompt tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--output-len", command->output_len, "Without a trace: output tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--limit", command->limit, "Only the first so many requests of the trace")
      ->check(CLI::PositiveNumber);
  sub->add_option("--warmup-steps", command->warmup_steps,
                  "With --steps: least steps before the clock starts")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--steps", command->steps,
                  "Measure so many steps of the steady state: once every aged request of the trace "
                  "has been compressed")
      ->check(CLI::PositiveNumber);
  sub->add_option("--profile-steps", command->profile_steps,
                  "On a GPU, after the measured steps: steps whose parts are timed one by one")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_option("--json", command->json_path, "Write the report to this file");
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
