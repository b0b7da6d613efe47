// zipage eval MODEL --problems FILE: pass@1 on problems with exact answers.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <unordered_map>

#include "zipage/tokenizer.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/output_file.h"
#include "cli/problems.h"
#include "cli/quality_report.h"
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
  std::string cache, model, device;
  CompressionOptions compression;
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
  report["model"] = s.model;
  report["device"] = s.device;
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

QualityPoint point_of(const Setting& s) {
  const CompressionOptions& c = s.compression;
  return {s.model,     c.capped() ? to_string(c.kv_policy) : "",
          c.kv_budget, s.all.pass(),
          s.all.total, s.numbers.tokens_per_second()};
}

// "t.kvt" -> "t-peak-512.kvt": each of several settings has a trace of its own. Without a cap there
// is nothing to trace.
std::string trace_path(const std::string& path, const CompressionOptions& c) {
  if (path.empty() || !c.capped()) return "";
  std::filesystem::path file(path);
  const std::string name = fmt::format("{}-{}-{}{}", file.stem().string(), to_string(c.kv_policy),
                                       c.kv_budget, file.extension().string());
  return file.replace_filename(name).string();
}

struct EvalCommand {
  EngineFlags engine;
  std::string problems_path, json_path, output_path, plot_path;
  std::vector<std::string> from_paths;
  int64_t limit = 0, max_tokens = 0;

  int run() {
    check_writable("--json", json_path);
    check_writable("--output", output_path);
    check_writable("--plot", plot_path);
    if (!from_paths.empty()) return draw_reports();
    if (problems_path.empty())
      fail_invalid("--problems: missing; give a file of problems, or reports with --from");
    std::vector<Problem> problems = read_problems(problems_path);
    if (limit > 0 && static_cast<int64_t>(problems.size()) > limit)
      problems.resize(static_cast<size_t>(limit));
    std::vector<Setting> settings;
    std::vector<EngineOptions> grid = engine.option_grid();
    for (EngineOptions& options : grid) {
      if (grid.size() > 1) options.kv_trace = trace_path(options.kv_trace, options.compression);
      settings.push_back(run_setting(problems, options));
      if (settings.back().numbers.interrupted) break;
    }
    print(settings);
    if (!json_path.empty()) write_json(json_path, report(settings));
    if (!output_path.empty()) write_outputs(problems, settings.back().completions);
    std::vector<QualityPoint> points;
    for (const Setting& s : settings) {
      if (!s.numbers.interrupted) points.push_back(point_of(s));
    }
    if (!plot_path.empty() && !points.empty())
      write_file("--plot", plot_path, draw_quality(points));
    return settings.back().numbers.interrupted ? kExitInterrupted : kExitOk;
  }

  int draw_reports() const {
    if (plot_path.empty()) fail_invalid("--from: needs --plot FILE.svg");
    if (!problems_path.empty() || !json_path.empty() || !output_path.empty())
      fail_invalid("--from: draws saved reports; --problems, --json and --output run a model");
    std::vector<QualityPoint> points;
    for (const std::string& path : from_paths) {
      for (QualityPoint& point : read_quality_report(path)) points.push_back(std::move(point));
    }
    write_file("--plot", plot_path, draw_quality(points));
    return kExitOk;
  }

  Setting run_setting(const std::vector<Problem>& problems, const EngineOptions& options) const {
    const auto model = engine.create_engine(options);
    Setting setting;
    setting.compression = model->info().compression;
    setting.cache = cache_name(setting.compression);
    setting.model = model->info().model_name;
    setting.device = model->info().device;
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
    write_file("--output", output_path, lines);
  }
};

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<EvalCommand>();
  CLI::App* sub = app.add_subcommand("eval", "pass@1 on problems with exact answers (greedy)");
  sub->add_option("--problems", command->problems_path,
                  "JSON lines with prompt, answer, and optionally id and task");
  sub->add_option("--limit", command->limit, "Only the first so many problems")
      ->check(CLI::PositiveNumber);
  sub->add_option("--max-tokens", command->max_tokens,
                  "Most output tokens a problem (default: up to the model's length)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--json", command->json_path, "Write the report to this file");
  sub->add_option("--output", command->output_path,
                  "Write the (last setting's) completions to this file, as JSON lines");
  sub->add_option("--plot", command->plot_path,
                  "Draw pass@1 over budget and over speed as an SVG; --kv-policy and --kv-budget "
                  "take lists (peak,paper and full,256,512)");
  sub->add_option("--from", command->from_paths,
                  "With --plot: draw these reports of earlier --json, and run nothing")
      ->delimiter(',');
  command->engine.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
