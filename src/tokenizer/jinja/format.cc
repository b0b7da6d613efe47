// Python's two ways of formatting text, as far as templates go.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=' or 0
  char sign = '-';
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

std::string pad(std::string text, const Spec& spec, char default_align) {
  const int64_t missing = spec.width - num_characters(text);
  if (missing <= 0) return text;
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align != 0 ? spec.align : default_align) {
    case '<':
      return text + fill(missing);
    case '^':
      return fill(missing / 2) + text + fill(missing - missing / 2);
    case '=': {
      const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
      return text.substr(0, sign) + fill(missing) + text.substr(sign);
    }
    default:
      return fill(missing) + text;
  }
}

std::string format_number(const Value& value, const Spec& spec) {
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  std::string digits;
  const bool negative = value.as_double() < 0;
  const bool integral = value.is_integral();
  const double magnitude = std::fabs(value.as_double());
  const uint64_t whole = integral ? (negative ? 0 - static_cast<uint64_t>(value.as_int())
                                              : static_cast<uint64_t>(value.as_int()))
                                  : 0;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'g':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case 'x':
      digits = fmt::format("{:x}", whole);
      break;
    case 'X':
      digits = fmt::format("{:X}", whole);
      break;
    case 'o':
      digits = fmt::format("{:o}", whole);
      break;
    case 'b':
      digits = fmt::format("{:b}", whole);
      break;
    case 0:
    case 'd':
      if (integral) {
        digits = std::to_string(whole);
      } else if (spec.precision >= 0) {
        digits = fmt::format("{:.{}g}", magnitude, precision);
      } else {
        digits = float_repr(magnitude);
      }
      break;
    default:
      fail_invalid("unknown format code '{}'", spec.type);
  }
  if (spec.comma) {
    const size_t point = std::min(digits.find('.'), digits.size());
    for (size_t i = point; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  }
  if (negative) return "-" + digits;
  return spec.sign == '+' ? "+" + digits : spec.sign == ' ' ? " " + digits : digits;
}

int64_t read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') {
    value = std::min<int64_t>(value * 10 + (text[i++] - '0'), kMaxWidth + 1);
  }
  if (value > kMaxWidth) fail_invalid("a format is wider than {}", kMaxWidth);
  return value;
}

// Before a number or a text is formatted: digits beyond a double's are slow to make.
void charge_spec(Budget& budget, const Spec& spec) {
  budget.make(static_cast<uint64_t>(spec.width) * spec.fill.size());
  budget.make(static_cast<uint64_t>(std::max<int64_t>(spec.precision, 0)));
  budget.work(static_cast<uint64_t>(std::max<int64_t>(spec.precision, 0)) / 4);
}

std::string format_spec(Budget& budget, const Value& value, std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const size_t first = text.empty() ? 0 : static_cast<size_t>(characters(text, 0, 1).size());
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[i++];
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' '))
    spec.sign = text[i++];
  if (i < text.size() && text[i] == '0') {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = std::string("0");
    }
    ++i;
  }
  spec.width = read_number(text, i);
  if (i < text.size() && text[i] == ',') {
    spec.comma = true;
    ++i;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    spec.precision = read_number(text, i);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) {
    fail_invalid("invalid format specifier '{}'", shortened(std::string(text)));
  }
  charge_spec(budget, spec);
  if (value.is_number() && !value.is(Kind::kBool))
    return pad(format_number(value, spec), spec, '>');
  if (spec.type != 0 && spec.type != 's') {
    if (value.is(Kind::kBool)) return pad(format_number(value, spec), spec, '>');
    fail_invalid("unknown format code '{}' for '{}'", spec.type, type_name(value));
  }
  std::string out = to_text(budget, value);
  if (spec.precision >= 0) out = std::string(characters(out, 0, spec.precision));
  return pad(std::move(out), spec, '<');
}

}  // namespace

std::string percent_format(Interpreter& interpreter, const std::string& text, const Value& values) {
  Budget& budget = interpreter.budget();
  budget.walk(text.size());
  // What the format itself adds; values are charged one by one.
  budget.make(text.size());
  std::string out;
  size_t next_value = 0;
  const bool is_tuple = values.is(Kind::kTuple);
  const auto take = [&]() -> Value {
    if (is_tuple) {
      if (next_value >= values.items().size()) {
        fail_invalid("not enough arguments for format string");
      }
      return values.items()[next_value++];
    }
    if (next_value++ > 0) fail_invalid("not enough arguments for format string");
    return values;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (++i >= text.size()) fail_invalid("incomplete format");
    if (text[i] == '%') {
      out += '%';
      continue;
    }
    Value value;
    bool has_value = false;
    if (text[i] == '(') {
      const size_t end = text.find(')', i);
      if (end == std::string::npos || !values.is_dict()) fail_invalid("format requires a mapping");
      value = interpreter.item(values, Value::string(text.substr(i + 1, end - i - 1)));
      has_value = true;
      i = end + 1;
    }
    Spec spec;
    for (; i < text.size() && std::string_view("-+ 0#").find(text[i]) != std::string_view::npos;
         ++i) {
      if (text[i] == '-') spec.align = '<';
      if (text[i] == '+' || text[i] == ' ') spec.sign = text[i];
      if (text[i] == '0' && spec.align == 0) {
        spec.align = '=';
        spec.fill = std::string("0");
      }
    }
    spec.width = read_number(text, i);
    if (i < text.size() && text[i] == '.') {
      ++i;
      spec.precision = read_number(text, i);
    }
    if (i >= text.size()) fail_invalid("incomplete format");
    if (!has_value) value = take();
    if (value.is_undefined() && text[i] != 's') fail_undefined(value);
    budget.work(1);
    charge_spec(budget, spec);
    switch (text[i]) {
      case 's':
      case 'r': {
        std::string body = text[i] == 's' ? to_text(budget, value) : to_repr(budget, value);
        if (spec.precision >= 0) body = std::string(characters(body, 0, spec.precision));
        if (spec.align == '=') spec = {.width = spec.width};
        out += pad(std::move(body), spec, '>');
        break;
      }
      case 'd':
      case 'i':
      case 'u':
        if (!value.is_number())
          fail_invalid("%d format: a number is required, not {}", type_name(value));
        spec.type = 'd';
        spec.precision = -1;
        if (value.is(Kind::kFloat)) value = Value::integer(static_cast<int64_t>(value.as_double()));
        out += pad(format_number(value, spec), spec, '>');
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'g':
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_number()) fail_invalid("must be real number, not {}", type_name(value));
        spec.type = text[i];
        out += pad(format_number(value, spec), spec, '>');
        break;
      default:
        fail_invalid("unsupported format character '{}'", text[i]);
    }
  }
  if (is_tuple && next_value < values.items().size()) {
    fail_invalid("not all arguments converted during string formatting");
  }
  if (!is_tuple && !values.is_dict() && next_value == 0) {
    fail_invalid("not all arguments converted during string formatting");
  }
  return out;
}

std::string brace_format(Interpreter& interpreter, const std::string& text, const CallArgs& args) {
  Budget& budget = interpreter.budget();
  budget.walk(text.size());
  budget.make(text.size());
  std::string out;
  size_t automatic = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    const size_t end = text.find('}', i);
    budget.work(1);
    if (c == '}' || end == std::string::npos) fail_invalid("single '{}' in a format string", c);
    std::string_view field = std::string_view(text).substr(i + 1, end - i - 1);
    i = end;
    std::string_view spec;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    if (spec.find('{') != std::string_view::npos || field.find('{') != std::string_view::npos) {
      fail_invalid("nested fields in a format string are not supported");
    }
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string name(field.substr(0, name_end));
    field.remove_prefix(name_end);
    Value value;
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      size_t digits = 0;
      const size_t index =
          name.empty() ? automatic++ : static_cast<size_t>(read_number(name, digits));
      if (index >= args.positional.size()) fail_invalid("format: no argument {}", index);
      value = args.positional[index];
    } else {
      budget.work(args.named.size() / 4);
      const auto found = std::find_if(args.named.begin(), args.named.end(),
                                      [&](const auto& entry) { return entry.first == name; });
      if (found == args.named.end()) fail_invalid("format: no argument '{}'", shortened(name));
      value = found->second;
    }
    while (!field.empty()) {
      if (field[0] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", 1), field.size());
        value = interpreter.attribute(value, std::string(field.substr(1, stop - 1)));
        field.remove_prefix(stop);
      } else {
        const size_t stop = field.find(']');
        if (field[0] != '[' || stop == std::string_view::npos) fail_invalid("broken format field");
        const std::string key(field.substr(1, stop - 1));
        size_t digits = 0;
        const bool numeric = !key.empty() && key[0] >= '0' && key[0] <= '9';
        value = interpreter.item(
            value, numeric ? Value::integer(read_number(key, digits)) : Value::string(key));
        field.remove_prefix(stop + 1);
      }
    }
    if (conversion == 'r') value = interpreter.new_string(to_repr(budget, value));
    if (conversion == 's') value = interpreter.new_string(to_text(budget, value));
    const std::string formatted = format_spec(budget, value, spec);
    budget.make(formatted.size());
    out += formatted;
  }
  return out;
}

}  // namespace zipage::jinja
