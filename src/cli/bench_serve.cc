// zipage bench serve: load on a server of the OpenAI API, and what its clients see.
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/load_answer.h"
#include "cli/load_dataset.h"
#include "cli/load_generator.h"
#include "cli/load_report.h"
#include "cli/workload.h"

namespace zipage::cli {
namespace {

struct ServeBenchCommand {
  DatasetOptions data;
  LoadOptions load;
  std::string base_url, host = "127.0.0.1", api_key, rate = "inf", temperature = "0", json_path,
                        output_path, expect_path;
  int64_t port = 8000, timeout_seconds = 600, ready_seconds = 0;
  std::vector<std::string> goodput_words;
  bool no_stream = false, insecure = false;
  CLI::Option *num_prompts_option = nullptr, *output_len_option = nullptr;

  void add_to(CLI::App& sub);
  void add_dataset(CLI::App& sub);
  int run();

 private:
  void check();
  void ask_model(const LoadTarget& target);
  void write_output(const LoadRun& run, const std::vector<LoadRequest>& requests) const;
};

void ServeBenchCommand::add_to(CLI::App& sub) {
  sub.add_option("--base-url", base_url,
                 "http[s]://HOST[:PORT][/PREFIX], instead of --host and --port");
  sub.add_option("--host", host, "Where the server listens")->capture_default_str();
  sub.add_option("--port", port, "Its port")->check(CLI::Range(1, 65535))->capture_default_str();
  sub.add_option("--endpoint", data.endpoint, "/v1/completions or /v1/chat/completions")
      ->check(CLI::IsMember({"/v1/completions", "/v1/chat/completions"}))
      ->capture_default_str();
  sub.add_option("--model", data.model, "Name of the model (default: the first that is served)");
  sub.add_option("--api-key", api_key, "Key of the server")->envname("ZIPAGE_API_KEY");
  sub.add_flag("--insecure", insecure, "TLS without a check of the certificate");
  sub.add_option("--request-rate", rate, "Requests a second, or inf: all at once")
      ->capture_default_str();
  sub.add_option(
         "--burstiness", load.burstiness,
         "Shape of the gamma distribution of the gaps; 1: a Poisson process, below: burstier")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub.add_option("--max-concurrency", load.max_concurrency, "Most requests in flight (0: no limit)")
      ->check(CLI::NonNegativeNumber);
  sub.add_option("--duration", load.duration_seconds,
                 "Go round the requests for so many seconds, instead of once")
      ->check(CLI::PositiveNumber);
  sub.add_option("--timeout", timeout_seconds, "Seconds without a byte that fail a request")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub.add_option("--ready-check-timeout-sec", ready_seconds,
                 "Seconds to wait for a server that is not there yet, or loads")
      ->check(CLI::NonNegativeNumber);
  sub.add_option("--seed", load.seed, "Seed of prompts, lengths and gaps")->capture_default_str();
  sub.add_flag("--no-stream", no_stream, "Whole answers instead of streams");
  sub.add_option("--goodput", goodput_words,
                 "Count good requests: ttft:MS, tpot:MS, e2el:MS at most (repeatable)");
  sub.add_option("--slow-readers", load.slow_readers,
                 "So many clients beside the load that hardly read their streams")
      ->check(CLI::NonNegativeNumber);
  sub.add_option("--json", json_path, "Write the report to this file");
  sub.add_option("--output", output_path, "Write the answers to this file, as JSON lines");
  sub.add_option("--expect", expect_path,
                 "Compare the answers with this file's: of --output, run-batch or eval --output");
  add_dataset(sub);
}

void ServeBenchCommand::add_dataset(CLI::App& sub) {
  const std::string group = "Requests";
  const auto add = [&](const std::string& names, auto& value, const std::string& help) {
    return sub.add_option(names, value, help)->group(group);
  };
  num_prompts_option =
      add("--num-prompts", data.num_prompts,
          "Requests (default 1000; with a file: as many as it has, which is gone round)")
          ->check(CLI::PositiveNumber);
  add("--input-len,--random-input-len", data.input_len, "Random prompts: tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  output_len_option = add("--output-len,--random-output-len", data.output_len,
                          "Random prompts: output tokens; with --problems: at most")
                          ->check(CLI::PositiveNumber)
                          ->capture_default_str();
  add("--random-prefix-len", data.prefix_len, "Random prompts: tokens that all begin with")
      ->check(CLI::NonNegativeNumber);
  add("--random-range-ratio", data.range_ratio,
      "Random prompts: lengths are drawn from LEN * (1 - R) to LEN * (1 + R)")
      ->check(CLI::Range(0.0, 1.0));
  add("--problems", data.problems_path, "JSON lines with prompt, answer and optionally id");
  add("--trace", data.trace_path, "JSON lines with prompt_tokens and output_tokens");
  add("--batch", data.batch_path, "A batch file, as for zipage run-batch");
  add("--temperature", temperature, "0: greedy; or none: the server's default")
      ->capture_default_str();
  sub.add_flag("--ignore-eos", data.ignore_eos, "Go on after the end token")->group(group);
  sub.add_flag("--return-token-ids", data.return_token_ids, "Ask for token ids, and compare them")
      ->group(group);
}

double parse_positive(const char* flag, const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || std::isnan(value) || value < 0)
    fail_invalid("{} {}: expected a number that is not negative", flag, text);
  return value;
}

void ServeBenchCommand::check() {
  load.request_rate = parse_positive("--request-rate", rate);
  if (load.request_rate == 0) fail_invalid("--request-rate 0: expected more than 0, or inf");
  data.temperature.reset();
  if (temperature != "none") data.temperature = parse_positive("--temperature", temperature);
  if (load.duration_seconds > 0 && std::isinf(load.request_rate) && load.max_concurrency == 0)
    fail_invalid("--duration: needs --request-rate or --max-concurrency");
  load.timeout = std::chrono::seconds(timeout_seconds);
  load.keep_output = !output_path.empty() || !expect_path.empty();
  data.seed = load.seed;
  data.stream = !no_stream;
  data.num_prompts_given = num_prompts_option->count() > 0;
  data.output_len_given = output_len_option->count() > 0;
}

// The model's name and vocabulary; fails when nobody answers.
void ServeBenchCommand::ask_model(const LoadTarget& target) {
  PlainResponse response;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(ready_seconds);
  for (bool again = true; again; std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
    again = std::chrono::steady_clock::now() < deadline;
    try {
      response = http_get(target, "/v1/models");
      if (response.status != 503) break;  // 503: it loads
    } catch (const Error& error) {
      if (!again) fail(error.code(), "--base-url {}; is the server running?", error.what());
    }
  }
  const std::string where = target.url.text() + target.url.prefix + "/v1/models";
  if (response.status == 401) fail_invalid("--api-key: {} wants a key, or another one", where);
  if (response.status != 200) {
    fail(StatusCode::kUnavailable, "--base-url {}: HTTP {}: {}", where, response.status,
         error_message(response.body));
  }
  boost::system::error_code error;
  const auto list = boost::json::parse(response.body, error);
  const auto* first = error ? nullptr : list.find_pointer("/data/0", error);
  const auto* id = first != nullptr ? first->find_pointer("/id", error) : nullptr;
  if (id == nullptr || !id->is_string())
    fail(StatusCode::kUnavailable, "--base-url {}: no list of models", where);
  if (data.model.empty() && data.batch_path.empty()) data.model = std::string(id->as_string());
  const auto* vocabulary = first->find_pointer("/meta/n_vocab", error);
  if (vocabulary != nullptr && vocabulary->is_int64() && vocabulary->as_int64() > 0)
    data.vocab_size = vocabulary->as_int64();
}

void ServeBenchCommand::write_output(const LoadRun& run,
                                     const std::vector<LoadRequest>& requests) const {
  std::FILE* file = std::fopen(output_path.c_str(), "w");
  bool ok = file != nullptr;
  for (const LoadResult& result : run.results) {
    if (!result.failure.empty() || !ok) continue;
    boost::json::object line{{"id", requests[result.request].id}, {"completion", result.text}};
    if (!result.token_ids.empty()) line["token_ids"] = boost::json::value_from(result.token_ids);
    const std::string text = boost::json::serialize(line) + "\n";
    ok = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  }
  if (file != nullptr) ok = std::fclose(file) == 0 && ok;
  if (!ok) fail(StatusCode::kResourceExhausted, "--output: cannot write '{}'", output_path);
}

int ServeBenchCommand::run() {
  check();
  const Goodput goodput = parse_goodput(goodput_words);
  LoadTarget target;
  target.url = base_url.empty()
                   ? BaseUrl{.tls = false, .host = host, .port = std::to_string(port), .prefix = ""}
                   : parse_base_url("--base-url", base_url);
  target.api_key = api_key;
  target.insecure = insecure;
  std::unordered_map<std::string, ExpectedAnswer> expected;
  if (!expect_path.empty()) expected = read_expected(expect_path);
  raise_file_limit();
  ask_model(target);
  const std::vector<LoadRequest> requests = make_requests(data);
  InterruptGuard interrupt;
  ProgressBar bar("Requests");
  const LoadRun run = run_load(target, load, requests, [&](const LoadProgress& p) {
    const double share =
        load.duration_seconds > 0 ? 1e3 * std::min(1.0, p.seconds / load.duration_seconds) : 0;
    bar.update(fmt::format("{} in flight, {} failed, {:.0f} chunks/s", p.in_flight, p.failed,
                           static_cast<double>(p.chunks) / std::max(p.seconds, 1e-9)),
               p.total > 0 ? p.finished + p.failed : static_cast<int64_t>(share),
               p.total > 0 ? p.total : 1000);
    return !interrupt.interrupted();
  });
  bar.finish();
  LoadReport report = make_report(run, goodput);
  if (!expect_path.empty()) compare_answers(run, requests, expected, report);
  std::printf("%s", report_text(report, goodput).c_str());
  if (!json_path.empty()) {
    boost::json::object out = report_json(report, goodput);
    out["model"] = data.model;
    out["endpoint"] = data.endpoint;
    out["base_url"] = target.url.text() + target.url.prefix;
    out["stream"] = data.stream;
    out["request_rate"] = rate;
    out["burstiness"] = load.burstiness;
    out["max_concurrency"] = load.max_concurrency;
    write_json(json_path, out);
  }
  if (!output_path.empty()) write_output(run, requests);
  if (run.interrupted) return kExitInterrupted;
  return report.completed == 0 || report.different > 0 ? kExitFailure : kExitOk;
}

}  // namespace

void add_bench_serve_command(CLI::App& bench, Action& action) {
  auto command = std::make_shared<ServeBenchCommand>();
  CLI::App* sub =
      bench.add_subcommand("serve", "Load on a running server: latencies and throughput");
  command->add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
