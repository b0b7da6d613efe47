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

// Of all problems of a setting, or of those of a task. The short answers finish first, and they are
// the easy ones: what an interrupted run has finished says nothing about pass@1 of the whole.
struct Score {
  int64_t right = 0, finished = 0, problems = 0;
  bool partial() const { return finished < problems; }
  double pass() const {
    return finished > 0 ? static_cast<double>(right) / static_cast<double>(finished) : 0;
  }
  std::string cell() const {
    if (!partial()) return fmt::format("{:.1f} %", 100 * pass());
    return fmt::format("{} right, {} of {} finished", right, finished, problems);
  }
  // The fields of a report. pass_at_1 is null when it is not known.
  void add_to(boost::json::object& report) const {
    report["pass_at_1"] = partial() ? boost::json::value(nullptr) : boost::json::value(pass());
    report["problems"] = problems;
    if (!partial()) return;
    report["finished"] = finished;
    report["right"] = right;
  }
};

// One setting's results.
struct Setting {
  std::string cache, model, device;
  CompressionOptions compression;
  std::map<std::string, Score> by_task;
  Score all;
  WorkloadNumbers numbers;
  // By problem; with `finished`, false for those that an interrupt cut off.
  std::vector<std::string> completions;
  std::vector<bool> finished;
  // Ids of the others.
  std::vector<std::string> unfinished;

  bool partial() const { return all.partial(); }
  std::string name() const { return cache + (partial() ? " (partial)" : ""); }
};

std::string cache_name(const CompressionOptions& c) {
  return c.capped() ? fmt::format("{} {}", to_string(c.kv_policy), c.kv_budget) : "full KV";
}

std::vector<std::string> table_row(const Setting& s) {
  const WorkloadNumbers& n = s.numbers;
  return {s.name(),
          s.all.cell(),
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
  s.all.add_to(report);
  boost::json::object tasks;
  for (const auto& [task, score] : s.by_task) {
    boost::json::object one;
    score.add_to(one);
    tasks[task] = std::move(one);
  }
  report["by_task"] = std::move(tasks);
  add_numbers(s.numbers, report);
  report["partial"] = s.partial();
  if (s.partial()) report["unfinished"] = boost::json::value_from(s.unfinished);
  return report;
}

QualityPoint point_of(const Setting& s) {
  const CompressionOptions& c = s.compression;
  return {s.model,        c.capped() ? to_string(c.kv_policy) : "",
          c.kv_budget,    s.all.pass(),
          s.all.problems, s.numbers.tokens_per_second()};
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
    if (!output_path.empty()) write_outputs(problems, settings.back());
    std::vector<QualityPoint> points;
    for (const Setting& s : settings) {
      if (!s.partial()) points.push_back(point_of(s));
    }
    if (!plot_path.empty() && !points.empty())
      write_file("--plot", plot_path, draw_quality(points));
    const size_t missing = grid.size() - points.size();
    if (!plot_path.empty() && missing > 0) {
      std::printf("%s\n", points.empty()
                              ? "no plot: no setting is finished"
                              : fmt::format("the plot leaves out {} of {} settings, which are not "
                                            "finished",
                                            missing, grid.size())
                                    .c_str());
    }
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
    setting.finished.resize(problems.size());
    for (const Problem& problem : problems) {
      ++setting.all.problems;
      ++setting.by_task[problem.task].problems;
    }
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
        setting.finished[i] = true;
        if (output.finish_reason == FinishReason::kError) error = output.error;
        const bool ended = output.finish_reason == FinishReason::kStop;
        for (Score* score : {&setting.all, &setting.by_task[problems[i].task]}) {
          ++score->finished;
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
    for (size_t i = 0; i < problems.size(); ++i) {
      if (!setting.finished[i]) setting.unfinished.push_back(problems[i].id);
    }
    return setting;
  }

  static void print(const std::vector<Setting>& settings) {
    std::vector<std::vector<std::string>> tasks = {{"cache", "problems"}};
    for (const auto& [task, score] : settings.front().by_task) tasks[0].push_back(task);
    for (const Setting& s : settings) {
      std::vector<std::string>& row =
          tasks.emplace_back(std::vector<std::string>{s.name(), std::to_string(s.all.problems)});
      for (const auto& [task, score] : s.by_task) row.push_back(score.cell());
    }
    if (tasks[0].size() > 3) std::printf("%s\n", format_table(tasks).c_str());
    std::vector<std::vector<std::string>> rows = {{"cache", "pass@1", "tok/s", "mean running",
                                                   "peak running", "preemptions", "recomputed",
                                                   "compressions", "KV memory"}};
    for (const Setting& s : settings) rows.push_back(table_row(s));
    std::printf("%s", format_table(rows).c_str());
    if (settings.back().partial()) print_unfinished(settings.back());
  }

  static void print_unfinished(const Setting& s) {
    constexpr size_t kMostNames = 20;
    std::string names;
    for (size_t i = 0; i < std::min(s.unfinished.size(), kMostNames); ++i)
      names += (i > 0 ? ", " : "") + s.unfinished[i];
    if (s.unfinished.size() > kMostNames)
      names += fmt::format(" and {} more", s.unfinished.size() - kMostNames);
    std::printf(
        "interrupted: %s has no pass@1: %lld of %lld problems are not finished (%s), and those "
        "with "
        "short answers finish first\n",
        s.cache.c_str(), static_cast<long long>(s.unfinished.size()),
        static_cast<long long>(s.all.problems), names.c_str());
  }

  // One setting: its report. Several: {"settings": [...]}.
  static boost::json::object report(const std::vector<Setting>& settings) {
    if (settings.size() == 1) return report_of(settings.front());
    boost::json::array list;
    for (const Setting& s : settings) list.push_back(report_of(s));
    return {{"settings", std::move(list)}};
  }

  void write_outputs(const std::vector<Problem>& problems, const Setting& setting) const {
    std::string lines;
    for (size_t i = 0; i < problems.size(); ++i) {
      boost::json::object line{{"id", problems[i].id}, {"completion", setting.completions[i]}};
      if (!setting.finished[i]) line["finished"] = false;
      lines += boost::json::serialize(line) + "\n";
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
