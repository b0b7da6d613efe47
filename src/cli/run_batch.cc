// zipage run-batch MODEL -i in.jsonl -o out.jsonl: the OpenAI batch API without a server.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <random>

#include "base/error.h"
#include "cli/answer_flags.h"
#include "cli/batch_file.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "server/api_error.h"
#include "server/offline.h"

namespace zipage::cli {
namespace {

class RunBatchCommand {
 public:
  void add_to(CLI::App& sub);
  int run();

 private:
  // Submits one item; its line is written when it is answered.
  void submit(const BatchItem& item, server::Offline& offline, BatchOutput& output);
  void answer(const BatchItem& item,
              const std::string& request_id,
              const server::HttpResponse& response,
              BatchOutput& output);

  EngineFlags engine_;
  server::ServerOptions options_;
  std::string input_path_, output_path_;
  std::mt19937_64 random_{std::random_device{}()};
  // By this run.
  int64_t done_ = 0, failed_ = 0;
  // Why the output cannot be written; ends the run.
  std::exception_ptr output_failure_;
};

void RunBatchCommand::add_to(CLI::App& sub) {
  sub.add_option("-i,--input-file", input_path_, "JSON lines with custom_id, method, url and body")
      ->required();
  sub.add_option("-o,--output-file", output_path_,
                 "Where answers go, one line each; one that is there already is gone on with")
      ->required();
  engine_.add_to(sub);
  const size_t before = sub.get_options().size();
  add_answer_flags(sub, options_);
  group_options(sub, before, "Requests");
}

void RunBatchCommand::answer(const BatchItem& item,
                             const std::string& request_id,
                             const server::HttpResponse& response,
                             BatchOutput& output) {
  ++done_;
  if (response.status != 200) ++failed_;
  // Whoever delivers an answer takes an exception for a failure of that request.
  try {
    output.append(batch_line(item.custom_id, request_id, response.status, response.body));
  } catch (...) {
    if (!output_failure_) output_failure_ = std::current_exception();
  }
}

void RunBatchCommand::submit(const BatchItem& item, server::Offline& offline, BatchOutput& output) {
  const std::string id = fmt::format("{:016x}{:016x}", random_(), random_());
  const auto refuse = [&](int status, const std::string& field, const std::string& message) {
    answer(item, id, server::error_response(status, field + ": " + message, field), output);
  };
  const auto* stream = item.body.if_contains("stream");
  if (item.method != "POST")
    return refuse(405, "method", fmt::format("expected POST, found {}", item.method));
  if (item.url != "/v1/chat/completions" && item.url != "/v1/completions") {
    return refuse(
        404, "url",
        fmt::format("expected /v1/chat/completions or /v1/completions, found {}", item.url));
  }
  if (stream != nullptr && *stream != false && !stream->is_null())
    return refuse(400, "stream", "not in a batch");
  offline.post(item.url, boost::json::serialize(item.body), id,
               [this, &item, &output, id](const server::HttpResponse& response) {
                 answer(item, id, response, output);
               });
}

int RunBatchCommand::run() {
  check_answer_flags(options_);
  EngineOptions engine_options = engine_.options();
  std::error_code ignored;
  if (std::filesystem::equivalent(input_path_, output_path_, ignored))
    fail_invalid("-o {}: the same file as -i", output_path_);
  const std::vector<BatchItem> items = read_batch(input_path_);
  std::unordered_set<std::string> known;
  for (const BatchItem& item : items) known.insert(item.custom_id);
  BatchOutput output(output_path_, known);
  const auto before = static_cast<int64_t>(output.answered().size());
  const auto total = static_cast<int64_t>(items.size());
  const LogLevel threshold = engine_.log_level();
  if (output.cut()) log_line(threshold, "warning", output_path_ + ": cut off a half-written line");
  if (before > 0) {
    log_line(threshold, "info",
             fmt::format("{}: {} of {} are answered already", output_path_, before, total));
  }
  if (before == total) return kExitOk;

  options_.limits.max_queued_requests = 0;
  options_.log = [threshold](const std::string& level, const std::string& line) {
    log_line(threshold, level, line);
  };
  server::Offline offline(options_);
  engine_options.step_done = offline.step_done();
  engine_options.max_queued_requests = 0;
  const auto model = engine_.create_engine(engine_options);
  offline.set_engine(*model);
  // Enough to keep every slot busy; the rest of the file waits unread by the engine.
  const auto window = static_cast<size_t>(2 * std::max<int64_t>(engine_options.max_num_seqs, 16));
  InterruptGuard interrupt;
  ProgressBar bar("Batch");
  const auto started = std::chrono::steady_clock::now();
  for (size_t next = 0; !interrupt.interrupted();) {
    for (; next < items.size() && offline.num_in_progress() < window; ++next) {
      if (output.answered().count(items[next].custom_id) == 0) submit(items[next], offline, output);
    }
    if (next == items.size() && offline.num_in_progress() == 0) break;
    (void)model->step();
    offline.deliver();
    if (output_failure_) std::rethrow_exception(output_failure_);
    const EngineStats stats = model->stats();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    bar.update(
        fmt::format("{:.0f} tok/s, {} running, {} failed",
                    static_cast<double>(stats.generation_tokens) / std::max(seconds.count(), 1e-9),
                    stats.num_running + stats.num_compressing, failed_),
        before + done_, total);
  }
  bar.finish();
  output.close();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  const int64_t tokens = model->stats().generation_tokens;
  std::printf("%lld of %lld answered, %lld by this run (%lld refused); %lld tokens in %.2f s\n",
              static_cast<long long>(before + done_), static_cast<long long>(total),
              static_cast<long long>(done_), static_cast<long long>(failed_),
              static_cast<long long>(tokens), seconds.count());
  if (before + done_ == total) return kExitOk;
  std::printf("interrupted: run the same command again to go on\n");
  return kExitInterrupted;
}

}  // namespace

void add_run_batch_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<RunBatchCommand>();
  CLI::App* sub =
      app.add_subcommand("run-batch", "Answer a file of OpenAI batch requests; can be resumed");
  command->add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
