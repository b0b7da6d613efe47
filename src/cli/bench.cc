// zipage bench throughput MODEL --trace FILE: how fast a set of requests is answered.
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <random>

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/json_lines.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

struct TraceRow {
  int64_t prompt_tokens = 0, output_tokens = 0, age = 0;
};

std::vector<TraceRow> read_trace(const std::string& path) {
  std::vector<TraceRow> rows;
  constexpr int64_t kMost = int64_t{1} << 24;
  read_json_lines(path, [&](const JsonLine& line) {
    TraceRow row{line.integer("prompt_tokens", 1, kMost), line.integer("output_tokens", 1, kMost),
                 line.integer_or("age", 0, kMost, 0)};
    if (row.age >= row.output_tokens) line.fail_field("age", "not less than output_tokens");
    rows.push_back(row);
  });
  if (rows.empty()) fail_invalid("{}: no requests in the trace", path);
  return rows;
}

struct ThroughputCommand {
  EngineFlags engine;
  std::string trace_path, json_path;
  int64_t num_prompts = 64, input_len = 64, output_len = 512, limit = 0, warmup_steps = 0,
          steps = 0;

  std::vector<TraceRow> rows() const {
    if (trace_path.empty()) {
      return std::vector<TraceRow>(static_cast<size_t>(num_prompts),
                                   TraceRow{input_len, output_len, 0});
    }
    std::vector<TraceRow> trace = read_trace(trace_path);
    if (limit > 0 && static_cast<int64_t>(trace.size()) > limit)
      trace.resize(static_cast<size_t>(limit));
    return trace;
  }

  int run() {
    const std::vector<TraceRow> trace = rows();
    const auto model = engine.create_engine();
    int64_t done = 0;
    Status error;
    std::mt19937_64 random(1);
    for (size_t i = 0; i < trace.size(); ++i) {
      Request request;
      // Requests that are `age` tokens into their output when the clock starts bring those along as
      // prompt.
      request.prompt_token_ids.resize(static_cast<size_t>(trace[i].prompt_tokens + trace[i].age));
      for (int32_t& id : request.prompt_token_ids) {
        id = static_cast<int32_t>(
            random() % static_cast<uint64_t>(std::min<int64_t>(model->info().vocab_size, 256)));
      }
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.detokenize = false;
      request.sampling.max_tokens = trace[i].output_tokens - trace[i].age;
      auto id = model->submit(std::move(request), [&](const RequestOutput& output) {
        if (output.finished()) ++done;
        if (output.finish_reason == FinishReason::kError) error = output.error;
      });
      if (!id.ok()) fail_invalid("trace row {}: {}", i + 1, id.status().message());
    }
    WorkloadRunner runner(*model, "Requests", static_cast<int64_t>(trace.size()));
    const auto finished = [&] { return done; };
    const auto after = [&](int64_t count) {
      return [&, end = model->stats().steps + count] { return model->stats().steps >= end; };
    };
    if (warmup_steps > 0) runner.run(finished, after(warmup_steps));
    const WorkloadNumbers n = steps > 0 ? runner.run(finished, after(steps)) : runner.run(finished);
    if (!error.ok()) return report(error);
    boost::json::object out;
    out["requests"] = static_cast<int64_t>(trace.size());
    out["model"] = model->info().model_name;
    out["device"] = model->info().device;
    add_numbers(n, out);
    const auto& ms = out["ms_per_step"].as_object();
    std::printf(
        "%lld requests, %lld output tokens in %.2f s: %.1f tok/s, %.1f running, %lld preemptions, "
        "%lld compressions\n",
        static_cast<long long>(done), static_cast<long long>(n.output_tokens), n.seconds,
        n.tokens_per_second(), n.mean_running, static_cast<long long>(n.preemptions),
        static_cast<long long>(n.compressions));
    std::printf("ms a step: %s\n", boost::json::serialize(ms).c_str());
    if (!json_path.empty()) write_json(json_path, out);
    return n.interrupted ? kExitInterrupted : kExitOk;
  }
};

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the engine");
  bench->require_subcommand(1);
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
  sub->add_option("--warmup-steps", command->warmup_steps, "Steps before the clock starts")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--steps", command->steps, "Stop after so many measured steps")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", command->json_path, "Write the report to this file");
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
