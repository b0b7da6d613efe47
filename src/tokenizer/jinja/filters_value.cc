#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

Value default_filter(Interpreter&, const Value& value, const CallArgs& call_args) {
  const Arguments args("default", call_args, {"default_value", "boolean"});
  if (value.is_undefined() || (args.boolean(1, false) && !is_true(value))) {
    return args.has(0) ? args.get(0) : Value::string("");
  }
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value int_filter(Interpreter&, const Value& value, const CallArgs& call_args) {
  const Arguments args("int", call_args, {"default", "base"});
  const Value fallback = args.has(0) ? args.get(0) : Value::integer(0);
  if (value.is_integral()) return Value::integer(value.as_int());
  std::optional<int64_t> result;
  if (value.is(Kind::kFloat)) {
    result = truncated(value.as_double());
  } else if (value.is_string()) {
    const int64_t base = args.integer(1, 10);
    if (base < 2 || base > 36) fail_invalid("int(): base is {}; it must lie in [2, 36]", base);
    std::string_view text = strip(value.text(), true, true);
    if (text.starts_with('+')) text.remove_prefix(1);
    int64_t parsed = 0;
    const auto end = text.data() + text.size();
    const auto done = std::from_chars(text.data(), end, parsed, static_cast<int>(base));
    if (done.ec == std::errc() && done.ptr == end && !text.empty()) {
      result = parsed;
    } else if (const auto number = parse_float(value.text())) {
      result = truncated(*number);
    }
  }
  return result ? Value::integer(*result) : fallback;
}

Value float_filter(Interpreter&, const Value& value, const CallArgs& call_args) {
  const Arguments args("float", call_args, {"default"});
  if (value.is_number()) return Value::floating(value.as_double());
  if (value.is_string()) {
    if (const auto number = parse_float(value.text())) return Value::floating(*number);
  }
  return args.has(0) ? args.get(0) : Value::floating(0);
}

Value round_filter(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("round", call_args, {"precision", "method"});
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail_invalid("round() needs a number, not {}", type_name(value));
  const int64_t precision = args.integer(0, 0);
  if (precision < -300 || precision > 300) fail_invalid("round(): precision is {}", precision);
  const std::string method = args.text(1, "common");
  if (method == "common") {
    if (value.is_integral() && precision >= 0) return Value::integer(value.as_int());
    if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      return Value::floating(std::nearbyint(value.as_double() / unit) * unit);
    }
    interpreter.budget().work(static_cast<uint64_t>(precision));
    // printf rounds the exact value half to even, as Python's round() does.
    const std::string text = fmt::format("{:.{}f}", value.as_double(), precision);
    return Value::floating(parse_float(text).value_or(value.as_double()));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::floating(std::ceil(value.as_double() * unit) / unit);
  if (method == "floor") return Value::floating(std::floor(value.as_double() * unit) / unit);
  fail_invalid("round(): method is '{}'; it must be common, ceil or floor", method);
}

Value abs_filter(Interpreter& interpreter, const Value& value, const CallArgs&) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail_invalid("bad operand type for abs(): '{}'", type_name(value));
  if (value.is(Kind::kFloat)) return Value::floating(std::fabs(value.as_double()));
  if (value.as_int() >= 0) return Value::integer(value.as_int());
  return arithmetic(interpreter, "-", Value::integer(0), value);
}

Value attr_filter(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("attr", call_args, {"name"});
  const std::string name = args.text(0);
  // Attributes only: a dict's keys are none.
  return value.is_dict() ? find_method(value, name) : interpreter.attribute(value, name);
}

Value pprint_filter(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return interpreter.new_string(to_repr(interpreter.budget(), value));
}

constexpr std::array<std::pair<std::string_view, Filter>, 8> kFilters = {{
    {"default", default_filter},
    {"d", default_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"round", round_filter},
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"pprint", pprint_filter},
}};

}  // namespace

Filter find_value_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace zipage::jinja
