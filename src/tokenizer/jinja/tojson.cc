// The filter tojson: Python's json.dumps with the defaults that chat templates rely on.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

struct Style {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

class Writer {
 public:
  Writer(Interpreter& interpreter, Style style)
      : interpreter_(interpreter), style_(std::move(style)) {}

  std::string write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    interpreter_.budget().make(text.size());
    out_ += text;
  }
  void put_string(std::string_view text) {
    // An escape takes six bytes at most, or three times those of a character.
    interpreter_.budget().make(2 * text.size() + 2);
    interpreter_.budget().walk(text.size());
    const size_t before = out_.size();
    append_json_string(text, style_.ensure_ascii, out_);
    interpreter_.budget().make(out_.size() - before);
  }

  void append(const Value& value, int level) {
    interpreter_.budget().work(1);
    switch (value.kind()) {
      case Kind::kNone:
        put("null");
        break;
      case Kind::kBool:
        put(value.as_int() != 0 ? "true" : "false");
        break;
      case Kind::kInt:
        put(std::to_string(value.as_int()));
        break;
      case Kind::kFloat:
        put(number(value.as_double()));
        break;
      case Kind::kString:
        put_string(value.text());
        break;
      case Kind::kList:
      case Kind::kTuple:
        append_list(value, level);
        return;
      case Kind::kDict:
        append_dict(value, level);
        return;
      default:
        fail_invalid("Object of type {} is not JSON serializable", type_name(value));
    }
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void append_break(int level) {
    if (!style_.has_indent) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(style_.indent);
  }

  void append_list(const Value& value, int level) {
    if (value.items().empty()) {
      put("[]");
      return;
    }
    put("[");
    bool first = true;
    for (const Value& item : value.items()) {
      if (!first) put(style_.item_separator);
      first = false;
      append_break(level + 1);
      append(item, level + 1);
    }
    append_break(level);
    put("]");
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_int() != 0 ? "true" : "false";
      case Kind::kInt:
        return std::to_string(key.as_int());
      case Kind::kFloat:
        return number(key.as_double());
      default:
        fail_invalid("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void append_dict(const Value& value, int level) {
    const auto& dict = value.get<DictObject>();
    if (dict.entries.empty()) {
      put("{}");
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    interpreter_.budget().make(dict.entries.size() * sizeof(void*));
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less_than(interpreter_.budget(), a->first, b->first);
      });
    }
    put("{");
    bool first = true;
    for (const auto* entry : entries) {
      const auto& [key, item] = *entry;
      if (!first) put(style_.item_separator);
      first = false;
      append_break(level + 1);
      put_string(key_text(key));
      put(style_.key_separator);
      append(item, level + 1);
    }
    append_break(level);
    put("}");
  }

  Interpreter& interpreter_;
  Style style_;
  std::string out_;
};

}  // namespace

Value tojson_filter(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("tojson", call_args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Style style;
  style.ensure_ascii = args.boolean(0, false);
  style.sort_keys = args.boolean(3, false);
  if (args.has(1) && !args.get(1).is_none()) {
    style.has_indent = true;
    style.item_separator = std::string(",");
    style.indent =
        args.get(1).is_string()
            ? args.text(1)
            : std::string(static_cast<size_t>(std::clamp<int64_t>(args.integer(1, 0), 0, 1000)),
                          ' ');
  }
  if (args.has(2) && !args.get(2).is_none()) {
    const std::vector<Value> separators = interpreter.iterate(args.get(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail_invalid("tojson(): separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return interpreter.new_string(Writer(interpreter, std::move(style)).write(value));
}

}  // namespace zipage::jinja
