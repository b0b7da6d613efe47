#include <cmath>
#include <limits>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/markup.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail_undefined(*value);
  }
  fail_invalid("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b));
}

[[noreturn]] void fail_overflow() { fail_invalid("an integer does not fit 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail_invalid("division by zero");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) fail_overflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return Value::floating(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value integer_arithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) fail_overflow();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  } else if (op == "//") {
    result = floor_divide(a, b);
  } else if (op == "%") {
    result = b == -1 ? 0 : a - floor_divide(a, b) * b;
  } else if (op == "/") {
    if (b == 0) fail_invalid("division by zero");
    return Value::floating(static_cast<double>(a) / static_cast<double>(b));
  } else {
    return integer_power(a, b);
  }
  return Value::integer(result);
}

Value float_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::floating(a + b);
  if (op == "-") return Value::floating(a - b);
  if (op == "*") return Value::floating(a * b);
  if (op == "**") return Value::floating(std::pow(a, b));
  if (b == 0) fail_invalid("division by zero");
  if (op == "/") return Value::floating(a / b);
  if (op == "//") return Value::floating(std::floor(a / b));
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::floating(rest);
}

Value repeat(Interpreter& interpreter, const Value& what, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t unit = what.is_string() ? what.text().size() : what.items().size() * sizeof(Value);
  if (unit != 0 && times > (size_t{1} << 40) / unit) interpreter.budget().make(uint64_t{1} << 60);
  interpreter.budget().make(unit * times);
  if (what.is_string()) {
    std::string out;
    out.reserve(unit * times);
    for (size_t i = 0; unit != 0 && i < times; ++i) out += what.text();
    return interpreter.new_string(std::move(out));
  }
  std::vector<Value> out;
  for (size_t i = 0; unit != 0 && i < times; ++i) {
    out.insert(out.end(), what.items().begin(), what.items().end());
  }
  return what.is(Kind::kList) ? interpreter.new_list(std::move(out))
                              : interpreter.new_tuple(std::move(out));
}

}  // namespace

Value arithmetic(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == "+" && a.is_string() && b.is_string()) {
    if (is_markup(a) || is_markup(b)) {
      // An escape takes six bytes at most.
      interpreter.budget().make(6 * (a.text().size() + b.text().size()));
      std::string text = (is_markup(a) ? a.text() : escape_html(a.text())) +
                         (is_markup(b) ? b.text() : escape_html(b.text()));
      return make_markup(std::move(text));
    }
    return interpreter.new_string(a.text() + b.text());
  }
  if (op == "+" && a.is_sequence() && a.kind() == b.kind()) {
    std::vector<Value> items = interpreter.iterate(a);
    const std::vector<Value> more = interpreter.iterate(b);
    items.insert(items.end(), more.begin(), more.end());
    return a.is(Kind::kList) ? interpreter.new_list(std::move(items))
                             : interpreter.new_tuple(std::move(items));
  }
  if (op == "*" && (a.is_string() || a.is_sequence()) && b.is_integral()) {
    return repeat(interpreter, a, b.as_int());
  }
  if (op == "*" && (b.is_string() || b.is_sequence()) && a.is_integral()) {
    return repeat(interpreter, b, a.as_int());
  }
  if (op == "%" && a.is_string()) {
    return interpreter.new_string(percent_format(interpreter, a.text(), b));
  }
  fail_operands(op, a, b);
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (item.is_undefined()) fail_undefined(item);
      if (!item.is_string()) {
        fail_invalid("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      return find_text(interpreter.budget(), container.text(), item.text()) !=
             std::string_view::npos;
    case Kind::kDict:
      if (item.is_string()) interpreter.budget().read(item.text().size());
      return container.get<DictObject>().find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& other : container.items()) {
        if (equals(interpreter.budget(), other, item)) return true;
      }
      return false;
    case Kind::kGenerator:
      for (const Value& other : interpreter.iterate(container)) {
        if (equals(interpreter.budget(), other, item)) return true;
      }
      return false;
    default:
      fail_invalid("argument of type '{}' is not iterable", type_name(container));
  }
}

}  // namespace zipage::jinja
