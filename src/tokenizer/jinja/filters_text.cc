#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/markup.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace zipage::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value changed(Interpreter& interpreter, const Value& value, const CallArgs&) {
  const std::string text = to_text(interpreter.budget(), value);
  interpreter.budget().walk(text.size());
  return interpreter.new_string(kChange(text));
}

// Jinja's own idea of titles: words start after white space, "-", "(", "{", "[" and "<".
std::string title_words(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end > begin) out += capitalize(text.substr(begin, end - begin));
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const bool separates = is_space(step.code_point) ||
                           std::string_view("-({[<").find(text[i]) != std::string_view::npos;
    if (separates) {
      flush(i);
      out.append(text.substr(i, step.length));
      begin = i + step.length;
    }
    i += step.length;
  }
  flush(text.size());
  return out;
}

// The text as safe HTML; with kForce even what is safe already is escaped.
template <bool kForce>
Value escape(Interpreter& interpreter, const Value& value, const CallArgs&) {
  if (!kForce && is_markup(value)) return value;
  const std::string text = to_text(interpreter.budget(), value);
  // An escape takes six bytes at most.
  interpreter.budget().make(6 * text.size());
  return make_markup(escape_html(text));
}

Value safe(Interpreter& interpreter, const Value& value, const CallArgs&) {
  std::string text = to_text(interpreter.budget(), value);
  interpreter.budget().make(text.size());
  return make_markup(std::move(text));
}

Value string_filter(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return value.is_string() ? value : interpreter.new_string(to_text(interpreter.budget(), value));
}

Value trim(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("trim", call_args, {"chars"});
  const std::string text = to_text(interpreter.budget(), value);
  if (!args.has(0) || args.get(0).is_none()) {
    return interpreter.new_string(std::string(strip(text, true, true)));
  }
  return interpreter.new_string(std::string(strip(text, true, true, args.text(0))));
}

// Calls a method of str on the value's text.
Value call_method(Interpreter& interpreter,
                  const char* name,
                  const Value& value,
                  const CallArgs& call_args) {
  CallArgs args = call_args;
  return interpreter.call(
      find_string_method(Value::string(to_text(interpreter.budget(), value)), name), args);
}

Value replace(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("replace", call_args, {"old", "new", "count"});
  CallArgs texts;
  texts.positional = {Value::string(to_text(interpreter.budget(), args.required(0))),
                      Value::string(to_text(interpreter.budget(), args.required(1)))};
  if (args.has(2) && !args.get(2).is_none()) texts.positional.push_back(args.get(2));
  return call_method(interpreter, "replace", value, texts);
}

Value center(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("center", call_args, {"width"});
  CallArgs width;
  width.positional = {Value::integer(args.integer(0, 80))};
  return call_method(interpreter, "center", value, width);
}

Value indent(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("indent", call_args, {"width", "first", "blank"});
  std::string indentation;
  if (args.has(0) && args.get(0).is_string()) {
    indentation = args.text(0);
  } else {
    const int64_t width = std::max<int64_t>(0, args.integer(0, 4));
    interpreter.budget().make(static_cast<size_t>(width));
    indentation.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = args.boolean(2, false);
  CallArgs none;
  const Value lines = call_method(interpreter, "splitlines",
                                  Value::string(to_text(interpreter.budget(), value) + "\n"), none);
  std::string out = args.boolean(1, false) ? indentation : "";
  bool first = true;
  for (const Value& line : lines.items()) {
    interpreter.budget().make(indentation.size() + line.text().size() + 1);
    if (!first) {
      out += '\n';
      if (blank || !line.text().empty()) out += indentation;
    }
    first = false;
    out += line.text();
  }
  return interpreter.new_string(std::move(out));
}

Value truncate(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("truncate", call_args, {"length", "killwords", "end", "leeway"});
  const std::string text = to_text(interpreter.budget(), value);
  const int64_t length = args.integer(0, 255);
  const std::string end = args.text(2, "...");
  if (num_characters(text) <= length + args.integer(3, 5)) return interpreter.new_string(text);
  std::string_view kept = characters(text, 0, std::max<int64_t>(0, length - num_characters(end)));
  if (!args.boolean(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return interpreter.new_string(std::string(kept) + end);
}

Value wordcount(Interpreter& interpreter, const Value& value, const CallArgs&) {
  const std::string text = to_text(interpreter.budget(), value);
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const bool word =
        step.code_point == '_' || is_alpha(step.code_point) || is_numeric(step.code_point);
    if (word && !inside) ++words;
    inside = word;
    i += step.length;
  }
  return Value::integer(words);
}

Value format(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail_invalid("format() takes positional or named arguments, not both");
  }
  Value values = interpreter.new_tuple(args.positional);
  if (!args.named.empty()) {
    DictBuilder dict;
    interpreter.charge_entries(args.named.size());
    for (const auto& [name, argument] : args.named) dict.set(name, argument);
    values = dict.finish();
  }
  return interpreter.new_string(
      percent_format(interpreter, to_text(interpreter.budget(), value), values));
}

Value urlencode(Interpreter& interpreter, const Value& value, const CallArgs&) {
  const std::string text = to_text(interpreter.budget(), value);
  interpreter.budget().make(3 * text.size());
  interpreter.budget().walk(text.size());
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
      continue;
    }
    constexpr const char* kDigits = "0123456789ABCDEF";
    const auto byte = static_cast<uint8_t>(c);
    ((out += '%') += kDigits[byte >> 4]) += kDigits[byte & 15];
  }
  return interpreter.new_string(std::move(out));
}

constexpr std::array<std::pair<std::string_view, Filter>, 18> kFilters = {{
    {"lower", changed<to_lower>},
    {"upper", changed<to_upper>},
    {"capitalize", changed<capitalize>},
    {"title", changed<title_words>},
    {"escape", escape<false>},
    {"e", escape<false>},
    {"forceescape", escape<true>},
    {"string", string_filter},
    {"safe", safe},
    {"trim", trim},
    {"replace", replace},
    {"center", center},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"format", format},
    {"urlencode", urlencode},
    {"tojson", tojson_filter},
}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace zipage::jinja
