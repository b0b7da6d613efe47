#include "cli/answer_flags.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "base/error.h"
#include "server/reasoning.h"

namespace zipage::cli {

void add_content_format_flag(CLI::App& command, ChatContentFormat& format) {
  command.add_option_function<std::string>(
      "--chat-template-content-format",
      [&format](const std::string& name) {
        auto parsed = parse_chat_content_format(name);
        if (!parsed.ok()) {
          throw CLI::ValidationError("--chat-template-content-format", parsed.status().message());
        }
        format = parsed.value();
      },
      "How the chat template is handed contents: auto (what it is found to read), string, or "
      "openai "
      "(a list of parts)");
}

void add_answer_flags(CLI::App& command, server::ServerOptions& options) {
  command
      .add_option("--served-model-name,--alias,-a", options.served_model_names,
                  "Names of the model (default: the model's); the first is shown")
      ->delimiter(',');
  command.add_option("--reasoning-parser", options.reasoning_parser,
                     "Split <think> text from answers: deepseek_r1, qwen3 or think");
  command.add_option("--default-chat-template-kwargs", options.default_chat_template_kwargs,
                     "JSON object of variables for the chat template");
  add_content_format_flag(command, options.chat_template_content_format);
  command.add_flag("--trust-request-chat-template", options.trust_request_chat_template,
                   "Accept chat_template in requests");
  command
      .add_option("--max-sequences-per-request", options.limits.max_sequences_per_request,
                  "Most prompts times n of a request")
      ->capture_default_str();
}

void check_answer_flags(const server::ServerOptions& options) {
  const auto& parsers = server::reasoning_parsers();
  if (!options.reasoning_parser.empty() &&
      std::find(parsers.begin(), parsers.end(), options.reasoning_parser) == parsers.end()) {
    fail_invalid("--reasoning-parser {}: expected deepseek_r1, qwen3 or think",
                 options.reasoning_parser);
  }
  if (options.default_chat_template_kwargs.empty()) return;
  boost::system::error_code error;
  const auto value = boost::json::parse(options.default_chat_template_kwargs, error);
  if (error || !value.is_object()) {
    fail_invalid("--default-chat-template-kwargs {}: expected a JSON object",
                 options.default_chat_template_kwargs);
  }
}

void group_options(CLI::App& command, size_t first, const std::string& group) {
  const auto all = command.get_options();
  for (size_t i = first; i < all.size(); ++i) {
    all[i]->group(group);
    std::string name = "ZIPAGE_" + all[i]->get_lnames().front();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    all[i]->envname(name);
  }
}

}  // namespace zipage::cli
