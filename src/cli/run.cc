// zipage run MODEL -p TEXT: completes one prompt and streams the answer to stdout.
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <unistd.h>

#include "zipage/tokenizer.h"

#include "base/error.h"
#include "cli/answer_flags.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/sampling_flags.h"

namespace zipage::cli {
namespace {

struct RunCommand {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string prompt, prompt_file, system;
  bool raw = false, has_prompt = false;
  ChatOptions chat_options;

  std::string prompt_text() const {
    if (has_prompt == !prompt_file.empty()) fail_invalid("give one of -p TEXT and -f FILE");
    if (has_prompt) return prompt;
    std::ifstream file(prompt_file, std::ios::binary);
    if (!file) fail(StatusCode::kNotFound, "--file: cannot read '{}'", prompt_file);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::string templated(const Tokenizer& tokenizer, const std::string& text) const {
    if (raw || !tokenizer.has_chat_template()) return text;
    boost::json::array messages;
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back({{"role", "user"}, {"content", text}});
    return value_or_fail(
        tokenizer.apply_chat_template(boost::json::serialize(messages), chat_options));
  }

  int run() {
    const std::string text = prompt_text();
    const auto model = engine.create_engine();
    const Tokenizer& tokenizer = model->tokenizer();
    Request request;
    const bool chat = !raw && tokenizer.has_chat_template();
    request.prompt_token_ids =
        tokenizer.encode(templated(tokenizer, text), {.add_special_tokens = !chat});
    request.sampling = sampling.params(model->default_sampling_params());
    InterruptGuard interrupt;
    Status error;
    int64_t tokens = 0;
    bool unread = false;
    const auto start = std::chrono::steady_clock::now();
    const RequestId id =
        value_or_fail(model->submit(std::move(request), [&](const RequestOutput& output) {
          tokens += static_cast<int64_t>(output.new_token_ids.size());
          std::fwrite(output.new_text.data(), 1, output.new_text.size(), stdout);
          // Nobody will read the rest; run_program() says why.
          if (std::fflush(stdout) != 0) unread = true;
          if (output.finish_reason == FinishReason::kError) error = output.error;
        }));
    bool aborted = false;
    while (model->step()) {
      if ((interrupt.interrupted() || unread) && !std::exchange(aborted, true)) model->abort(id);
    }
    std::printf("\n");
    if (!error.ok()) return report(error);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const EngineStats stats = model->stats();
    if (isatty(STDERR_FILENO)) {
      std::fprintf(stderr, "%lld tokens in %.2f s (%.1f tok/s), %lld compressions\n",
                   static_cast<long long>(tokens), seconds, static_cast<double>(tokens) / seconds,
                   static_cast<long long>(stats.compressions));
    }
    return interrupt.interrupted() ? kExitInterrupted : kExitOk;
  }
};

}  // namespace

void add_run_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<RunCommand>();
  CLI::App* sub = app.add_subcommand("run", "Complete one prompt");
  sub->alias("complete");
  CLI::Option* prompt = sub->add_option("-p,--prompt", command->prompt, "Text of the prompt");
  sub->add_option("-f,--file", command->prompt_file, "File with the text of the prompt");
  sub->add_option("--system", command->system, "System message");
  sub->add_flag("--raw", command->raw, "The prompt as it is: no chat template");
  add_content_format_flag(*sub, command->chat_options.content_format);
  command->engine.add_to(*sub);
  command->sampling.add_to(*sub);
  sub->callback([command, prompt, &action] {
    command->has_prompt = prompt->count() > 0;
    action = [command] { return command->run(); };
  });
}

}  // namespace zipage::cli
