#include "tokenizer/chat_shape.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tokenizer/chat_values.h"

namespace zipage {
namespace {

namespace json = boost::json;

// Words that survive lower(), trim and the like, and that no template says itself.
constexpr const char* kFirst = "zqfirstqz";
constexpr const char* kSecond = "zqsecondqz";
constexpr const char* kKey = "zqkeyqz";
constexpr const char* kText = "zqtextqz";

bool shows(const std::string& prompt, std::string_view word) {
  return prompt.find(word) != std::string::npos;
}

size_t count(std::string_view prompt, std::string_view word) {
  size_t found = 0;
  for (size_t at = prompt.find(word); at != std::string_view::npos;
       at = prompt.find(word, at + 1)) {
    ++found;
  }
  return found;
}

json::object text_part(json::string_view text) { return {{"type", "text"}, {"text", text}}; }

json::object message(const char* role, json::value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

class Prober {
 public:
  Prober(const jinja::Template& parsed, const std::map<std::string, std::string>& named_tokens)
      : template_(parsed), named_tokens_(named_tokens) {}

  TemplateShape probe() {
    TemplateShape shape;
    shape.user = probe_role([](json::value content) {
                   return json::array{message("user", std::move(content))};
                 }).value_or(ContentForm{});
    const json::value hello = plain("hello", shape.user);
    shape.system =
        probe_role([&](json::value content) {
          return json::array{message("system", std::move(content)), message("user", hello)};
        }).value_or(shape.user);
    shape.assistant =
        probe_role([&](json::value content) {
          return json::array{message("user", hello), message("assistant", std::move(content)),
                             message("user", hello)};
        }).value_or(shape.user);
    // Calls first: some templates want them in front of a tool's answer.
    probe_calls(hello, shape);
    shape.tool = probe_role([&](json::value content) {
                   return json::array{
                       message("user", hello),
                       calling_message(shape, shape.object_arguments ? json::value(json::object())
                                                                     : json::value("{}")),
                       tool_message(std::move(content))};
                 }).value_or(shape.user);
    return shape;
  }

 private:
  static json::value plain(const char* text, const ContentForm& form) {
    if (form.text || !form.parts) return json::value(text);
    return json::array{text_part(text)};
  }
  static json::object tool_message(json::value content) {
    json::object out = message("tool", std::move(content));
    out["tool_call_id"] = "call00001";
    out["name"] = "weather";
    return out;
  }
  static json::object calling_message(const TemplateShape& shape, json::value arguments) {
    json::object out = message(
        "assistant", shape.null_content ? json::value(nullptr) : plain("", shape.assistant));
    out["tool_calls"] =
        json::array{{{"id", "call00001"},
                     {"type", "function"},
                     {"function", {{"name", "weather"}, {"arguments", std::move(arguments)}}}}};
    return out;
  }

  // Nothing if the template fails. With and without tools: some show calls only beside them.
  std::optional<std::string> render(const json::array& messages, bool with_tools = false) const {
    jinja::Limits limits;
    limits.max_steps = 50'000;
    limits.max_bytes = 4 << 20;
    try {
      jinja::DictBuilder variables;
      for (const auto& [name, token] : named_tokens_) {
        variables.set(name, jinja::Value::string(token));
      }
      variables.set("messages", to_template_value(messages));
      variables.set("add_generation_prompt", jinja::Value::boolean(true));
      variables.set("tools", with_tools ? to_template_value(one_tool()) : jinja::Value::none());
      variables.set("documents", jinja::Value::none());
      return template_.render(variables.finish(), 0, limits);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  static json::value one_tool() {
    return json::array{
        {{"type", "function"},
         {"function",
          {{"name", "weather"},
           {"description", "Tells it."},
           {"parameters",
            {{"type", "object"},
             {"properties", {{"city", {{"type", "string"}, {"description", "Where."}}}}},
             {"required", json::array{"city"}}}}}}}};
  }

  // Nothing if the template shows the role's text in no form at all.
  template <typename MakeMessages>
  std::optional<ContentForm> probe_role(const MakeMessages& make) const {
    for (const bool tools : {false, true}) {
      const auto text = render(make(kFirst), tools);
      const auto parts = render(make(json::array{text_part(kFirst), text_part(kSecond)}), tools);
      ContentForm form;
      form.text = text && shows(*text, kFirst);
      // A list that is printed as it is shows the words too.
      const bool as_list =
          parts && (shows(*parts, "'type': 'text'") || shows(*parts, R"("type": "text")") ||
                    shows(*parts, R"("type":"text")"));
      form.parts = parts && !as_list && shows(*parts, kFirst);
      form.many_parts = form.parts && shows(*parts, kSecond);
      if (form.text || form.parts) return form;
    }
    return std::nullopt;
  }

  void probe_calls(const json::value& hello, TemplateShape& shape) const {
    const auto prompt = [&](json::value arguments, bool tools) {
      return render(
          json::array{message("user", hello), calling_message(shape, std::move(arguments)),
                      tool_message(plain("5", shape.user))},
          tools);
    };
    const json::object object = {{kKey, kText}};
    for (const bool tools : {false, true}) {
      const auto with_object = prompt(object, tools);
      const auto with_text = prompt(json::value(json::serialize(object)), tools);
      // As JSON or in words of the template's own; not as Python shows a dict.
      const bool object_shown = with_object && shows(*with_object, kKey) &&
                                shows(*with_object, kText) &&
                                !shows(*with_object, "'" + std::string(kKey) + "': '");
      const bool text_shown =
          with_text && shows(*with_text, "\"" + std::string(kKey) + "\":\"" + kText + "\"");
      if (!object_shown && !text_shown) continue;
      shape.object_arguments = object_shown;
      probe_null(hello, tools, shape);
      return;
    }
    probe_null(hello, false, shape);
  }

  void probe_null(const json::value& hello, bool tools, TemplateShape& shape) const {
    const json::value arguments =
        shape.object_arguments ? json::value(json::object()) : json::value("{}");
    const auto prompt = [&](bool null_content) {
      TemplateShape tried = shape;
      tried.null_content = null_content;
      return render(json::array{message("user", hello), calling_message(tried, arguments),
                                tool_message(plain("5", shape.user))},
                    tools);
    };
    const auto with_null = prompt(true);
    const auto with_empty = prompt(false);
    const size_t without = with_empty ? count(*with_empty, "None") : 0;
    shape.null_content = with_null && count(*with_null, "None") <= without;
  }

  const jinja::Template& template_;
  const std::map<std::string, std::string>& named_tokens_;
};

const ContentForm& form_of(const TemplateShape& shape, std::string_view role) {
  if (role == "assistant") return shape.assistant;
  if (role == "tool" || role == "function") return shape.tool;
  return role == "system" || role == "developer" ? shape.system : shape.user;
}

// The texts with line ends between them.
json::string joined(const json::array& parts, size_t index) {
  json::string out;
  for (const json::value& part : parts) {
    const auto* object = part.if_object();
    const auto* text = part.if_string();
    if (object != nullptr) {
      const auto* field = object->if_contains("text");
      text = field == nullptr ? nullptr : field->if_string();
    }
    if (text == nullptr) {
      fail_invalid(
          "messages[{}].content: the chat template reads text only; expected parts "
          "{{\"type\": \"text\", \"text\": ...}}",
          index);
    }
    if (&part != &parts.front()) out += '\n';
    out += *text;
  }
  return out;
}

bool only_texts(const json::array& parts) {
  for (const json::value& part : parts) {
    const auto* object = part.if_object();
    const auto* text = object == nullptr ? nullptr : object->if_contains("text");
    if (text == nullptr || !text->is_string()) return false;
  }
  return true;
}

void fit_content(json::object& message,
                 size_t index,
                 const TemplateShape& shape,
                 ChatContentFormat format) {
  const std::string_view role = message.at("role").as_string();
  ContentForm form = form_of(shape, role);
  if (format == ChatContentFormat::kString) form = {true, false, false};
  if (format == ChatContentFormat::kOpenai) form = {false, true, true};
  const bool wants_parts = form.parts && !form.text;
  const auto* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) {
    const auto* calls = message.if_contains("tool_calls");
    const bool calling =
        role == "assistant" && calls != nullptr && calls->is_array() && !calls->get_array().empty();
    if (calling && shape.null_content && format != ChatContentFormat::kOpenai) {
      message["content"] = nullptr;
    } else if (wants_parts) {
      message["content"] = json::array{text_part("")};
    } else {
      message["content"] = "";
    }
  } else if (content->is_string() && wants_parts) {
    json::array parts{text_part(content->get_string())};
    message["content"] = std::move(parts);
  } else if (content->is_array() && !form.parts) {
    message["content"] = joined(content->get_array(), index);
  } else if (content->is_array() && !form.many_parts && content->get_array().size() > 1 &&
             only_texts(content->get_array())) {
    message["content"] = json::array{text_part(joined(content->get_array(), index))};
  }
}

// A text of JSON to what it says; one that is not JSON stays. An empty one is no argument.
json::value parsed_arguments(const json::string& text) {
  json::parse_options options;
  options.max_depth = 64;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error && text.find_first_not_of(" \t\r\n") != json::string::npos) return json::value(text);
  return error || value.is_null() ? json::value(json::object()) : value;
}

void fit_calls(json::object& message, bool as_object) {
  auto* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::value& call : calls->get_array()) {
    auto* object = call.if_object();
    auto* function = object == nullptr ? nullptr : object->if_contains("function");
    if (function == nullptr || !function->is_object()) continue;
    auto* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr) continue;
    if (as_object && arguments->is_string()) {
      *arguments = parsed_arguments(arguments->get_string());
    } else if (!as_object && !arguments->is_string()) {
      *arguments =
          arguments->is_null() ? json::string("{}") : json::string(json::serialize(*arguments));
    }
  }
}

}  // namespace

TemplateShape probe_template(const jinja::Template& parsed,
                             const std::map<std::string, std::string>& named_tokens) {
  return Prober(parsed, named_tokens).probe();
}

void fit_messages(json::value& messages, const TemplateShape& shape, ChatContentFormat format) {
  json::array& list = messages.as_array();
  for (size_t i = 0; i < list.size(); ++i) {
    json::object& message = list[i].as_object();
    fit_content(message, i, shape, format);
    fit_calls(message, shape.object_arguments);
  }
}

}  // namespace zipage
