#include "tokenizer/chat_template.h"

#include <ctime>

#include "base/error.h"
#include "tokenizer/chat_values.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/json_view.h"
#include "tokenizer/utf8.h"

namespace zipage {
namespace {

jinja::Template parse(const std::string& source, const std::string& where) {
  if (!is_valid_utf8(source)) fail_invalid("{} is not UTF-8", where);
  try {
    return jinja::Template(source);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

// Goes behind the final message, to find its end in the prompt. A template that strips messages
// takes the space off; then the prompt is stripped too, as transformers does.
constexpr std::string_view kMarker = "<|zipage-end-of-final-message|> ";

void mark_final_message(boost::json::value& messages) {
  auto& list = messages.as_array();
  auto* message = list.empty() ? nullptr : list.back().if_object();
  auto* content = message == nullptr ? nullptr : message->if_contains("content");
  if (content != nullptr && content->is_array()) {
    for (auto part = content->get_array().rbegin(); part != content->get_array().rend(); ++part) {
      auto* object = part->if_object();
      if (object != nullptr && object->contains("text")) {
        content = &(*object)["text"];
        break;
      }
    }
  }
  if (content == nullptr || !content->is_string()) {
    fail_invalid("continue_final_message: the last message has no text to continue");
  }
  content->get_string().append(boost::json::string_view(kMarker.data(), kMarker.size()));
}

void cut_at_mark(std::string& prompt) {
  const size_t mark = prompt.rfind(kMarker.substr(0, kMarker.size() - 1));
  if (mark == std::string::npos) {
    fail_invalid("continue_final_message: the template does not show the last message's text");
  }
  const bool spaced = prompt.compare(mark, kMarker.size(), kMarker) == 0;
  prompt.resize(mark);
  if (!spaced) prompt.resize(jinja::strip(prompt, false, true).size());
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source,
                           const std::string& where,
                           std::map<std::string, std::string> named_tokens)
    : template_(parse(source, where)),
      named_tokens_(std::move(named_tokens)),
      shape_(probe_template(template_, named_tokens_)),
      where_(where) {}

std::string ChatTemplate::render(const std::string& messages_json,
                                 const ChatOptions& options) const {
  boost::json::value messages = parse_json(messages_json, "messages");
  if (!messages.is_array()) fail_invalid("messages must be an array of {{\"role\", \"content\"}}");
  for (size_t i = 0; i < messages.get_array().size(); ++i) {
    const auto* message = messages.get_array()[i].if_object();
    const auto* role = message == nullptr ? nullptr : message->if_contains("role");
    if (role == nullptr || !role->is_string()) {
      fail_invalid("messages[{}] must be an object with a string \"role\"", i);
    }
  }
  if (options.continue_final_message && options.add_generation_prompt) {
    fail_invalid("continue_final_message and add_generation_prompt exclude each other");
  }
  fit_messages(messages, shape_, options.content_format);
  if (options.continue_final_message) mark_final_message(messages);

  jinja::DictBuilder variables;
  for (const auto& [name, token] : named_tokens_) {
    variables.set(name, jinja::Value::string(token));
  }
  variables.set("messages", to_template_value(messages));
  variables.set("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
  jinja::Value tools = jinja::Value::none();
  if (!options.tools.empty()) {
    const boost::json::value parsed = parse_json(options.tools, "tools");
    if (!parsed.is_array()) fail_invalid("tools must be an array");
    if (!parsed.get_array().empty()) tools = to_template_value(parsed);
  }
  variables.set("tools", tools);
  variables.set("documents", jinja::Value::none());
  if (!options.template_kwargs.empty()) {
    const boost::json::value extra = parse_json(options.template_kwargs, "chat_template_kwargs");
    if (!extra.is_object()) fail_invalid("chat_template_kwargs must be an object");
    for (const auto& [name, value] : extra.get_object()) {
      variables.set({name.data(), name.size()}, to_template_value(value));
    }
  }
  std::string prompt;
  try {
    // A long conversation takes more than a short one; what a template may do with it stays bounded.
    const auto size = static_cast<int64_t>(messages_json.size() + options.tools.size() +
                                           options.template_kwargs.size());
    jinja::Limits limits;
    limits.max_steps += 8 * size;
    limits.max_bytes += 64 * size;
    prompt = template_.render(variables.finish(), std::time(nullptr), limits);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where_, error.what());
  }
  if (options.continue_final_message) cut_at_mark(prompt);
  return prompt;
}

Result<ChatContentFormat> parse_chat_content_format(std::string_view name) {
  if (name == "auto") return ChatContentFormat::kAuto;
  if (name == "string") return ChatContentFormat::kString;
  if (name == "openai") return ChatContentFormat::kOpenai;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}': expected auto, string or openai", name));
}

}  // namespace zipage
