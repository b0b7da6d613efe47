// zipage bench latency MODEL: how long one batch of equal requests takes, again and again.
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <random>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/output_file.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPercents[] = {10, 25, 50, 75, 90, 99};

double since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Seconds.
class Samples {
 public:
  void add(double seconds) { values_.push_back(seconds); }
  bool empty() const { return values_.empty(); }
  double mean() const {
    return values_.empty() ? 0
                           : std::accumulate(values_.begin(), values_.end(), 0.0) /
                                 static_cast<double>(values_.size());
  }
  // Linear between the two samples around it, as numpy.percentile.
  double percentile(double percent) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (at - std::floor(at)) * (sorted[above] - sorted[below]);
  }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

struct LatencyNumbers {
  Samples batch;        // from the first submit() to the last token
  Samples first_token;  // of each request
  Samples decode_step;  // a step in which no prompt token is computed
  Samples prompt_step;  // the others
  int64_t peak_running = 0;
};

struct LatencyCommand {
  EngineFlags engine;
  std::string json_path;
  int64_t batch_size = 8, input_len = 32, output_len = 128, warmup_iterations = 3, iterations = 15;

  void check(const EngineOptions& options, const EngineInfo& info) const {
    if (batch_size > options.max_num_seqs) {
      fail_invalid("--batch-size: {} is more than --max-num-seqs {}: it would not be one batch",
                   batch_size, options.max_num_seqs);
    }
    if (input_len + output_len > info.max_model_len) {
      fail_invalid("--input-len {}, --output-len {}: together more than max_model_len {}",
                   input_len, output_len, info.max_model_len);
    }
  }

  // One batch from start to end; false when Ctrl-C ended it.
  bool iterate(Engine& model,
               std::mt19937_64& random,
               const InterruptGuard& interrupt,
               LatencyNumbers& n) const {
    const auto vocab = static_cast<uint64_t>(std::min<int64_t>(model.info().vocab_size, 256));
    Status error;
    const auto start = SteadyClock::now();
    for (int64_t i = 0; i < batch_size; ++i) {
      Request request;
      // Other tokens each time, so that the prefix cache has nothing to give.
      for (int64_t t = 0; t < input_len; ++t)
        request.prompt_token_ids.push_back(static_cast<int32_t>(random() % vocab));
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.detokenize = false;
      request.sampling.max_tokens = output_len;
      bool first = true;
      const auto id =
          model.submit(std::move(request), [&, first](const RequestOutput& out) mutable {
            if (std::exchange(first, false)) n.first_token.add(since(start));
            if (out.finish_reason == FinishReason::kError) error = out.error;
          });
      if (!id.ok()) fail_with(id.status());
    }
    EngineStats before = model.stats();
    auto step_start = SteadyClock::now();
    while (model.step()) {
      const EngineStats after = model.stats();
      const auto now = SteadyClock::now();
      const double seconds = std::chrono::duration<double>(now - step_start).count();
      if (after.steps > before.steps)
        (after.prompt_tokens > before.prompt_tokens ? n.prompt_step : n.decode_step).add(seconds);
      n.peak_running = std::max(n.peak_running, after.num_running + after.num_compressing);
      before = after;
      step_start = now;
      if (interrupt.interrupted()) return false;
    }
    n.batch.add(since(start));
    if (!error.ok()) fail_with(error);
    return true;
  }

  int run() {
    check_writable("--json", json_path);
    const EngineOptions options = engine.options();
    const auto model = engine.create_engine();
    check(options, model->info());
    InterruptGuard interrupt;
    ProgressBar bar("Batches");
    std::mt19937_64 random{1};
    LatencyNumbers warm, n;
    bool whole = true;
    for (int64_t i = 0; whole && i < warmup_iterations + iterations; ++i) {
      bar.update(i < warmup_iterations ? "warm-up" : "", i, warmup_iterations + iterations);
      whole = iterate(*model, random, interrupt, i < warmup_iterations ? warm : n);
    }
    bar.finish();
    if (n.batch.empty()) return kExitInterrupted;
    print(n, *model);
    if (!json_path.empty()) write_json(json_path, report(n, *model));
    return whole ? kExitOk : kExitInterrupted;
  }

  double tokens_per_second(const LatencyNumbers& n) const {
    return static_cast<double>(batch_size * output_len) / n.batch.mean();
  }

  void print(const LatencyNumbers& n, const Engine& model) const {
    std::printf("batch of %lld requests, %lld + %lld tokens each, %zu times: %.1f tok/s\n",
                static_cast<long long>(batch_size), static_cast<long long>(input_len),
                static_cast<long long>(output_len), n.batch.values().size(), tokens_per_second(n));
    std::vector<std::vector<std::string>> rows = {{"milliseconds", "mean"}};
    for (const int percent : kPercents) rows[0].push_back(fmt::format("p{}", percent));
    const auto add = [&](const char* name, const Samples& samples) {
      std::vector<std::string>& row = rows.emplace_back();
      row = {name, fmt::format("{:.2f}", 1e3 * samples.mean())};
      for (const int percent : kPercents)
        row.push_back(fmt::format("{:.2f}", 1e3 * samples.percentile(percent)));
    };
    add("end to end", n.batch);
    add("first token", n.first_token);
    if (!n.prompt_step.empty()) add("step with prompts", n.prompt_step);
    if (!n.decode_step.empty()) add("decode step", n.decode_step);
    std::printf("%s", format_table(rows).c_str());
    if (n.peak_running < batch_size) {
      std::printf("at most %lld of the %lld requests ran at once: the KV memory holds no more\n",
                  static_cast<long long>(n.peak_running), static_cast<long long>(batch_size));
    }
    if (const int64_t compressions = model.stats().compressions; compressions > 0)
      std::printf("%lld compressions, warm-up included\n", static_cast<long long>(compressions));
  }

  boost::json::object report(const LatencyNumbers& n, const Engine& model) const {
    boost::json::object out;
    out["model"] = model.info().model_name;
    out["device"] = model.info().device;
    out["batch_size"] = batch_size;
    out["input_len"] = input_len;
    out["output_len"] = output_len;
    out["tokens_per_second"] = tokens_per_second(n);
    // As `vllm bench latency` names them, in seconds.
    out["avg_latency"] = n.batch.mean();
    out["latencies"] = boost::json::value_from(n.batch.values());
    boost::json::object& percentiles = out["percentiles"].emplace_object();
    for (const int percent : kPercents)
      percentiles[std::to_string(percent)] = n.batch.percentile(percent);
    const auto ms = [&](const char* name, const Samples& samples) {
      boost::json::object& part = out[name].emplace_object();
      part["samples"] = samples.values().size();
      part["mean"] = 1e3 * samples.mean();
      for (const int percent : kPercents)
        part[fmt::format("p{}", percent)] = 1e3 * samples.percentile(percent);
    };
    ms("end_to_end_ms", n.batch);
    ms("first_token_ms", n.first_token);
    ms("prompt_step_ms", n.prompt_step);
    ms("decode_step_ms", n.decode_step);
    out["peak_running"] = n.peak_running;
    out["compressions"] = model.stats().compressions;
    out["preemptions"] = model.stats().preemptions;
    return out;
  }
};

}  // namespace

void add_bench_latency_command(CLI::App& bench, Action& action) {
  auto command = std::make_shared<LatencyCommand>();
  CLI::App* sub =
      bench.add_subcommand("latency", "Time of one batch of equal requests, with percentiles");
  const auto add = [&](const char* name, int64_t& value, const char* text) {
    return sub->add_option(name, value, text)->capture_default_str();
  };
  add("--batch-size", command->batch_size, "Requests, submitted together")
      ->check(CLI::PositiveNumber);
  add("--input-len", command->input_len, "Prompt tokens of each")->check(CLI::PositiveNumber);
  add("--output-len", command->output_len, "Output tokens of each")->check(CLI::PositiveNumber);
  add("--num-iters-warmup", command->warmup_iterations, "Batches before the clock starts")
      ->check(CLI::NonNegativeNumber);
  add("--num-iters", command->iterations, "Batches that are timed")->check(CLI::PositiveNumber);
  sub->add_option("--json,--output-json", command->json_path, "Write the report to this file");
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
