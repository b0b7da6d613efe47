// zipage eval MODEL --problems FILE: pass@1 on problems with exact answers.
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <unordered_map>

#include "zipage/tokenizer.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/problems.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

struct Score {
  int64_t right = 0, total = 0;
  double pass() const {
    return total > 0 ? static_cast<double>(right) / static_cast<double>(total) : 0;
  }
};

// One setting's results.
struct Setting {
  std::string cache;
  std::map<std::string, Score> by_task;
  Score all;
  WorkloadNumbers numbers;
  std::vector<std::string> completions;  // by problem
};

std::string cache_name(const CompressionOptions& c) {
  return c.capped() ? fmt::format("{} {}", to_string(c.kv_policy), c.kv_budget) : "full KV";
}

std::vector<std::string> table_row(const Setting& s) {
  const WorkloadNumbers& n = s.numbers;
  return {s.cache,
          fmt::format("{:.1f} %", 100 * s.all.pass()),
          fmt::format("{:.0f}", n.tokens_per_second()),
          fmt::format("{:.1f}", n.mean_running),
          std::to_string(n.peak_running),
          std::to_string(n.preemptions),
          std::to_string(n.recomputed_tokens),
          std::to_string(n.compressions),
          fmt::format("{:.1f} MiB", static_cast<double>(n.kv_bytes) / 0x1p20)};
}

boost::json::object report_of(const Setting& s) {
  boost::json::object report;
  report["cache"] = s.cache;
  report["pass_at_1"] = s.all.pass();
  report["problems"] = s.all.total;
  boost::json::object tasks;
  for (const auto& [task, score] : s.by_task) {
    tasks[task] = {{"pass_at_1", score.pass()}, {"problems", score.total}};
  }
  report["by_task"] = std::move(tasks);
  add_numbers(s.numbers, report);
  return report;
}

struct EvalCommand {
  EngineFlags engine;
  std::string problems_path, json_path, output_path;
  int64_t limit = 0, max_tokens = 0;

  int run() {
    std::vector<Problem> problems = read_problems(problems_path);
    if (limit > 0 && static_cast<int64_t>(problems.size()) > limit)
      problems.resize(static_cast<size_t>(limit));
    std::vector<Setting> settings;
    for (const EngineOptions& options : engine.option_grid()) {
      settings.push_back(run_setting(problems, options));
      if (settings.back().numbers.interrupted) break;
    }
    print(settings);
    if (!json_path.empty()) write_json(json_path, report(settings));
    if (!output_path.empty()) write_outputs(problems, settings.back().completions);
    return settings.back().numbers.interrupted ? kExitInterrupted : kExitOk;
  }

  Setting run_setting(const std::vector<Problem>& problems, const EngineOptions& options) const {
    const auto model = engine.create_engine(options);
    Setting setting;
    setting.cache = cache_name(model->info().compression);
    setting.completions.resize(problems.size());
    int64_t done = 0;
    Status error;
    for (size_t i = 0; i < problems.size(); ++i) {
      Request request;
      request.prompt_token_ids =
          model->tokenizer().encode(problems[i].prompt, {.add_special_tokens = false});
      request.sampling = model->default_sampling_params();
      request.sampling.temperature = 0;
      request.sampling.max_tokens.reset();
      if (max_tokens > 0) request.sampling.max_tokens = max_tokens;
      Result<RequestId> id = model->submit(std::move(request), [&, i](const RequestOutput& output) {
        std::string& text = setting.completions[i];
        text += output.new_text;
        if (!output.finished()) return;
        ++done;
        if (output.finish_reason == FinishReason::kError) error = output.error;
        const bool ended = output.finish_reason == FinishReason::kStop;
        for (Score* score : {&setting.all, &setting.by_task[problems[i].task]}) {
          ++score->total;
          score->right += is_right(problems[i], text, ended);
        }
      });
      if (!id.ok())
        fail_invalid("{}: problem '{}': {}", problems_path, problems[i].id, id.status().message());
    }
    setting.numbers =
        WorkloadRunner(*model, setting.cache, static_cast<int64_t>(problems.size())).run([&] {
          return done;
        });
    if (!error.ok()) fail_with(error);
    return setting;
  }

  static void print(const std::vector<Setting>& settings) {
    std::vector<std::vector<std::string>> tasks = {{"cache", "problems"}};
    for (const auto& [task, score] : settings.front().by_task) tasks[0].push_back(task);
    for (const Setting& s : settings) {
      std::vector<std::string>& row = tasks.emplace_back(std::vector<std::string>{
          s.cache + (s.numbers.interrupted ? " (partial)" : ""), std::to_string(s.all.total)});
      for (const auto& [task, score] : s.by_task)
        row.push_back(fmt::format("{:.1f} %", 100 * score.pass()));
    }
    if (tasks[0].size() > 3) std::printf("%s\n", format_table(tasks).c_str());
    std::vector<std::vector<std::string>> rows = {{"cache", "pass@1", "tok/s", "mean running",
                                                   "peak running", "preemptions", "recomputed",
                                                   "compressions", "KV memory"}};
    for (const Setting& s : settings) rows.push_back(table_row(s));
    std::printf("%s", format_table(rows).c_str());
    if (settings.back().numbers.interrupted) {
      std::printf("interrupted: %s is partial, with %lld problems answered\n",
                  settings.back().cache.c_str(), static_cast<long long>(settings.back().all.total));
    }
  }

  // One setting: its report. Several: {"settings": [...]}.
  static boost::json::object report(const std::vector<Setting>& settings) {
    if (settings.size() == 1) return report_of(settings.front());
    boost::json::array list;
    for (const Setting& s : settings) list.push_back(report_of(s));
    return {{"settings", std::move(list)}};
  }

  void write_outputs(const std::vector<Problem>& problems,
                     const std::vector<std::string>& texts) const {
    std::string lines;
    for (size_t i = 0; i < problems.size(); ++i) {
      lines += boost::json::serialize(
                   boost::json::object{{"id", problems[i].id}, {"completion", texts[i]}}) +
               "\n";
    }
    std::FILE* file = std::fopen(output_path.c_str(), "w");
    bool ok = file != nullptr && std::fwrite(lines.data(), 1, lines.size(), file) == lines.size();
    if (file != nullptr) ok = std::fclose(file) == 0 && ok;
    if (!ok) fail(StatusCode::kResourceExhausted, "--output: cannot write '{}'", output_path);
  }
};

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<EvalCommand>();
  CLI::App* sub = app.add_subcommand("eval", "pass@1 on problems with exact answers (greedy)");
  sub->add_option("--problems", command->problems_path,
                  "JSON lines with prompt, answer, and optionally id and task")
      ->required();
  sub->add_option("--limit", command->limit, "Only the first so many problems")
      ->check(CLI::PositiveNumber);
  sub->add_option("--max-tokens", command->max_tokens,
                  "Most output tokens a problem (default: up to the model's length)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", command->json_path, "Write the report to this file");
  sub->add_option("--output", command->output_path,
                  "Write the (last setting's) completions to this file, as JSON lines");
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
