// The tests of "is".
#include <array>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/markup.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

Value other(const CallArgs& args) {
  if (args.positional.size() != 1) fail_invalid("the test needs one argument");
  return args.positional.front();
}

std::string read_text(Interpreter& interpreter, const Value& value) {
  std::string text = to_text(interpreter.budget(), value);
  interpreter.budget().walk(text.size());
  return text;
}

template <Kind... kKinds>
bool is_kind(Interpreter&, const Value& value, const CallArgs&) {
  return ((value.kind() == kKinds) || ...);
}

bool is_defined(Interpreter&, const Value& value, const CallArgs&) { return !value.is_undefined(); }
bool is_equal(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return equals(interpreter.budget(), value, other(args));
}
bool is_not_equal(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return !equals(interpreter.budget(), value, other(args));
}
bool is_less(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return less_than(interpreter.budget(), value, other(args));
}
bool is_greater(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return less_than(interpreter.budget(), other(args), value);
}
bool is_at_most(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return less_than(interpreter.budget(), value, other(args)) ||
         equals(interpreter.budget(), value, other(args));
}
bool is_at_least(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return less_than(interpreter.budget(), other(args), value) ||
         equals(interpreter.budget(), value, other(args));
}
bool is_in(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return contains(interpreter, other(args), value);
}
bool is_same(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  const Value that = other(args);
  if (value.kind() != that.kind()) return false;
  if (value.is_number() || value.is_none() || value.is_undefined())
    return equals(interpreter.budget(), value, that);
  return value.identity() == that.identity() ||
         (value.is_string() && equals(interpreter.budget(), value, that));
}
bool is_boolean_true(Interpreter&, const Value& value, const CallArgs&) {
  return value.is(Kind::kBool) && value.as_int() != 0;
}
bool is_boolean_false(Interpreter&, const Value& value, const CallArgs&) {
  return value.is(Kind::kBool) && value.as_int() == 0;
}
bool is_iterable(Interpreter&, const Value& value, const CallArgs&) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is_undefined() ||
         value.is(Kind::kGenerator) || value.is(Kind::kLoop);
}
bool is_odd(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return equals(interpreter.budget(), arithmetic(interpreter, "%", value, Value::integer(2)),
                Value::integer(1));
}
bool is_even(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return equals(interpreter.budget(), arithmetic(interpreter, "%", value, Value::integer(2)),
                Value::integer(0));
}
bool is_divisible(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  return equals(interpreter.budget(), arithmetic(interpreter, "%", value, other(args)),
                Value::integer(0));
}
bool is_lower_text(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return is_lower(read_text(interpreter, value));
}
bool is_upper_text(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return is_upper(read_text(interpreter, value));
}
bool is_filter(Interpreter&, const Value& value, const CallArgs&) {
  if (!value.is_string()) return false;
  return find_text_filter(value.text()) != nullptr || find_list_filter(value.text()) != nullptr ||
         find_value_filter(value.text()) != nullptr;
}
bool is_test(Interpreter&, const Value& value, const CallArgs&) {
  return value.is_string() && find_test(value.text()) != nullptr;
}
bool is_escaped(Interpreter&, const Value& value, const CallArgs&) { return is_markup(value); }

constexpr std::array<std::pair<std::string_view, Test>, 39> kTests = {{
    {"defined", is_defined},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"boolean", is_kind<Kind::kBool>},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"number", is_kind<Kind::kInt, Kind::kFloat, Kind::kBool>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"sequence", is_kind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kUndefined>},
    {"iterable", is_iterable},
    {"callable", is_kind<Kind::kCallable, Kind::kLoop>},
    {"true", is_boolean_true},
    {"false", is_boolean_false},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"in", is_in},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"==", is_equal},
    {"ne", is_not_equal},
    {"!=", is_not_equal},
    {"lt", is_less},
    {"lessthan", is_less},
    {"<", is_less},
    {"le", is_at_most},
    {"<=", is_at_most},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {">", is_greater},
    {"ge", is_at_least},
    {">=", is_at_least},
    {"sameas", is_same},
    {"lower", is_lower_text},
    {"upper", is_upper_text},
    {"filter", is_filter},
    {"test", is_test},
    {"escaped", is_escaped},
}};

}  // namespace

Test find_test(std::string_view name) {
  for (const auto& [known, test] : kTests) {
    if (known == name) return test;
  }
  return nullptr;
}

}  // namespace zipage::jinja
