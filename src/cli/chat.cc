// zipage chat MODEL: a conversation in the terminal.
#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <memory>
#include <unistd.h>
#include <utility>

#include "zipage/tokenizer.h"

#include "base/error.h"
#include "cli/answer_flags.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/sampling_flags.h"

namespace zipage::cli {
namespace {

constexpr const char* kHelp =
    "/reset  forget the conversation\n"
    "/help   this text\n"
    "/exit   leave (as does end of input)\n"
    "Ctrl-C stops the answer; at the prompt it leaves.\n";

// "/rest": a slip of the hand, no message. "/usr/bin is ..." is one.
bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         std::all_of(line.begin() + 1, line.end(), [](unsigned char c) { return std::islower(c); });
}

struct ChatCommand {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string system;
  ChatOptions chat_options;

  int run() {
    const auto model = engine.create_engine();
    if (!model->tokenizer().has_chat_template()) {
      fail_invalid("{}: the model has no chat template; use 'zipage run --raw'",
                   model->info().model_name);
    }
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal) std::fprintf(stderr, "%s", kHelp);
    boost::json::array messages = start();
    for (std::string line; read_line(terminal, line);) {
      if (line.empty()) continue;
      if (line == "/exit" || line == "/quit") break;
      if (line == "/help") {
        std::fprintf(stderr, "%s", kHelp);
      } else if (line == "/reset") {
        messages = start();
      } else if (is_command(line)) {
        std::fprintf(stderr, "%s: no such command\n%s", line.c_str(), kHelp);
      } else {
        messages.push_back({{"role", "user"}, {"content", line}});
        std::string text;
        if (answer(*model, messages, text)) {
          messages.push_back({{"role", "assistant"}, {"content", text}});
        } else {
          messages.pop_back();
        }
      }
    }
    return kExitOk;
  }

  boost::json::array start() const {
    boost::json::array messages;
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    return messages;
  }

  static bool read_line(bool terminal, std::string& line) {
    if (terminal) std::fprintf(stderr, "> ");
    const bool read = static_cast<bool>(std::getline(std::cin, line));
    if (terminal && !read) std::fprintf(stderr, "\n");
    return read;
  }

  // Streams the answer to stdout. False when the request could not run: the reason is on stderr.
  bool answer(Engine& model, const boost::json::array& messages, std::string& text) const {
    const auto prompt =
        model.tokenizer().apply_chat_template(boost::json::serialize(messages), chat_options);
    Request request;
    if (prompt.ok())
      request.prompt_token_ids =
          model.tokenizer().encode(prompt.value(), {.add_special_tokens = false});
    request.sampling = sampling.params(model.default_sampling_params());
    Status error = prompt.status();
    InterruptGuard interrupt;
    RequestId id = 0;
    if (error.ok()) {
      const auto submitted = model.submit(std::move(request), [&](const RequestOutput& output) {
        text += output.new_text;
        std::fwrite(output.new_text.data(), 1, output.new_text.size(), stdout);
        std::fflush(stdout);
        if (output.finish_reason == FinishReason::kError) error = output.error;
      });
      error = submitted.status();
      if (error.ok()) id = submitted.value();
    }
    bool stopped = false;
    while (error.ok() && model.step()) {
      if (interrupt.interrupted() && !std::exchange(stopped, true)) model.abort(id);
    }
    std::printf("\n");
    if (!error.ok()) std::fprintf(stderr, "zipage: %s\n", error.message().c_str());
    return error.ok();
  }
};

}  // namespace

void add_chat_command(CLI::App& app, Action& action) {
  auto command = std::make_shared<ChatCommand>();
  CLI::App* sub = app.add_subcommand("chat", "Talk to a model in the terminal");
  sub->add_option("--system", command->system, "System message");
  add_content_format_flag(*sub, command->chat_options.content_format);
  command->engine.add_to(*sub);
  command->sampling.add_to(*sub);
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace zipage::cli
