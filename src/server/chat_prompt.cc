#include "server/chat_prompt.h"

#include <algorithm>
#include <array>

#include "server/api_error.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};
// Passed to the template as they are.
constexpr std::array<std::string_view, 6> kPassed{"name",      "tool_calls",        "tool_call_id",
                                                  "reasoning", "reasoning_content", "thinking"};
// An answer's fields that clients send back; nothing is behind them here.
constexpr std::array<std::string_view, 4> kOnlyNull{"refusal", "audio", "annotations",
                                                    "function_call"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// A string, or a list of parts; the tokenizer brings either into the form that the template reads.
void check_content(const json::value& content, const std::string& field) {
  if (content.is_string() || content.is_null()) return;
  if (!content.is_array())
    fail_field(field, "expected a string or a list of parts, found {}", shown(content));
  for (const auto& part : content.as_array()) {
    const auto* object = part.if_object();
    const auto* type = object != nullptr ? object->if_contains("type") : nullptr;
    const auto* words = object != nullptr ? object->if_contains("text") : nullptr;
    if (type == nullptr || *type != "text" || words == nullptr || !words->is_string()) {
      fail_field(field, "only parts {{\"type\": \"text\", \"text\": ...}} are supported, found {}",
                 shown(part));
    }
  }
}

json::object checked_message(const json::value& value, size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!value.is_object()) fail_field(place, "expected an object, found {}", shown(value));
  const json::object& in = value.as_object();
  json::object out;
  const auto* role = in.if_contains("role");
  if (role == nullptr) fail_field(place + ".role", "missing");
  if (!role->is_string() || !contains(kRoles, std::string_view(role->as_string()))) {
    fail_field(place + ".role", "expected system, developer, user, assistant or tool, found {}",
               shown(*role));
  }
  out["role"] = *role;
  const auto* content = in.if_contains("content");
  if (content == nullptr && *role != "assistant") fail_field(place + ".content", "missing");
  if (content != nullptr) check_content(*content, place + ".content");
  out["content"] = content == nullptr ? json::value(nullptr) : *content;
  for (const auto& member : in) {
    const std::string_view name = member.key();
    if (name == "role" || name == "content" || member.value().is_null()) continue;
    const bool empty = member.value().is_array() && member.value().as_array().empty();
    if (contains(kPassed, name)) {
      out[name] = member.value();
    } else if (!(contains(kOnlyNull, name) && empty)) {
      fail_field(place + "." + std::string(name.substr(0, 80)), "{}",
                 contains(kOnlyNull, name) ? "not supported; accepted: null" : "unknown field");
    }
  }
  return out;
}

json::object template_variables(Fields& f, const ModelContext& context) {
  json::object variables;
  if (!context.options.default_chat_template_kwargs.empty())
    variables = json::parse(context.options.default_chat_template_kwargs).as_object();
  if (const auto* kwargs = f.find("chat_template_kwargs")) {
    if (!kwargs->is_object())
      fail_field("chat_template_kwargs", "expected an object, found {}", shown(*kwargs));
    for (const auto& member : kwargs->as_object()) variables[member.key()] = member.value();
  }
  if (const auto* documents = f.find("documents")) {
    if (!documents->is_array())
      fail_field("documents", "expected a list, found {}", shown(*documents));
    variables["documents"] = *documents;
  }
  if (const auto effort = f.text("reasoning_effort")) variables["reasoning_effort"] = *effort;
  return variables;
}

}  // namespace

Prompt read_chat_prompt(Fields& f, const ModelContext& context) {
  const auto* messages = f.find("messages");
  if (messages == nullptr) fail_field("messages", "missing");
  if (!messages->is_array() || messages->as_array().empty())
    fail_field("messages", "expected a list with at least one message, found {}", shown(*messages));
  json::array checked;
  for (size_t i = 0; i < messages->as_array().size(); ++i)
    checked.push_back(checked_message(messages->as_array()[i], i));

  ChatOptions options;
  options.continue_final_message = f.boolean("continue_final_message").value_or(false);
  options.add_generation_prompt =
      f.boolean("add_generation_prompt").value_or(!options.continue_final_message);
  if (options.continue_final_message && options.add_generation_prompt)
    fail_field("continue_final_message", "not together with add_generation_prompt");
  options.chat_template = f.text("chat_template").value_or("");
  if (!options.chat_template.empty() && !context.options.trust_request_chat_template) {
    fail_field("chat_template", "not accepted; this server renders the model's own template alone");
  }
  options.content_format = context.options.chat_template_content_format;
  const json::object variables = template_variables(f, context);
  if (!variables.empty()) options.template_kwargs = json::serialize(variables);
  if (options.chat_template.empty() && !context.tokenizer.has_chat_template())
    fail_field("messages", "the model has no chat template; use /v1/completions");
  auto text = context.tokenizer.apply_chat_template(json::serialize(checked), options);
  if (!text.ok()) fail_field("messages", "{}", text.status().message());
  return tokenize(text.value(), f.boolean("add_special_tokens").value_or(false), context,
                  "messages", f.find("truncate_prompt_tokens") != nullptr);
}

}  // namespace zipage::server
