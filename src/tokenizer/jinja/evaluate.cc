#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  budget_.work(1);
  if (++depth_ > max_depth_) {
    --depth_;
    fail_invalid("nested deeper than {} evaluations", max_depth_);
  }
  struct Leave {
    int& depth;
    ~Leave() { --depth; }
  } const leave{depth_};
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName:
      return evaluate_name(expr);
    case ExprKind::kAttribute:
      return attribute(evaluate(*expr.args[0]), expr.text);
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.args[0]);
      return item(object, evaluate(*expr.args[1]));
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall: {
      const Value callee = evaluate(*expr.args[0]);
      CallArgs args = evaluate_arguments(expr);
      line_ = expr.line;
      return call(callee, args);
    }
    case ExprKind::kFilter:
      return evaluate_filter(expr, nullptr);
    case ExprKind::kTest: {
      const Value value = evaluate(*expr.args[0]);
      CallArgs args = evaluate_arguments(expr);
      return Value::boolean(apply_test(expr.text, value, args));
    }
    case ExprKind::kUnary: {
      const Value value = evaluate(*expr.args[0]);
      if (expr.text == "not") return Value::boolean(!is_true(value));
      if (value.is_undefined()) fail_undefined(value);
      if (!value.is_number()) {
        fail_invalid("bad operand type for unary {}: '{}'", expr.text, type_name(value));
      }
      if (expr.text == "+") return value.is(Kind::kFloat) ? value : Value::integer(value.as_int());
      if (value.is(Kind::kFloat)) return Value::floating(-value.as_double());
      return arithmetic(*this, "-", Value::integer(0), value);
    }
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kConditional:
      if (is_true(evaluate(*expr.args[1]))) return evaluate(*expr.args[0]);
      if (expr.args[2] != nullptr) return evaluate(*expr.args[2]);
      return Value::undefined("the inline if-expression evaluated to false and has no else");
    case ExprKind::kList:
    case ExprKind::kTuple: {
      std::vector<Value> items;
      items.reserve(expr.args.size());
      for (const ExprPtr& arg : expr.args) items.push_back(evaluate(*arg));
      return expr.kind == ExprKind::kList ? new_list(std::move(items))
                                          : new_tuple(std::move(items));
    }
    case ExprKind::kDict:
      return evaluate_dict(expr);
  }
  return Value();
}

Value Interpreter::evaluate_name(const Expr& expr) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    budget_.work(scope->variables.size() / 16);
    if (const Value* value = scope->find(expr.text)) return *value;
  }
  if (const Value* value = globals_.get<DictObject>().find(expr.text)) return *value;
  Value global = find_global(expr.text);
  if (!global.is_undefined()) return global;
  return undefined("'{}' is undefined", expr.text);
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  DictBuilder dict;
  charge_entries(expr.args.size() / 2);
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = evaluate(*expr.args[i]);
    if (key.is_string()) budget_.read(key.text().size());
    dict.set(key, evaluate(*expr.args[i + 1]));
  }
  return dict.finish();
}

Value Interpreter::evaluate_binary(const Expr& expr) {
  Value left = evaluate(*expr.args[0]);
  if (expr.text == "and") return is_true(left) ? evaluate(*expr.args[1]) : left;
  if (expr.text == "or") return is_true(left) ? left : evaluate(*expr.args[1]);
  const Value right = evaluate(*expr.args[1]);
  line_ = expr.line;
  if (expr.text == "~") return new_string(to_text(budget_, left) + to_text(budget_, right));
  return arithmetic(*this, expr.text, left, right);
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.args[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.args[i + 1]);
    const std::string& op = expr.ops[i];
    bool holds = false;
    if (op == "==") {
      holds = equals(budget_, left, right);
    } else if (op == "!=") {
      holds = !equals(budget_, left, right);
    } else if (op == "in") {
      holds = contains(*this, right, left);
    } else if (op == "not in") {
      holds = !contains(*this, right, left);
    } else if (op == "<") {
      holds = less_than(budget_, left, right);
    } else if (op == ">") {
      holds = less_than(budget_, right, left);
    } else if (op == "<=") {
      holds = less_than(budget_, left, right) || equals(budget_, left, right);
    } else {
      holds = less_than(budget_, right, left) || equals(budget_, left, right);
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.args[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = expr.args[i + 1] == nullptr ? Value::none() : evaluate(*expr.args[i + 1]);
    if (!bounds[i].is_none() && !bounds[i].is_integral()) {
      fail_invalid("slice indices must be integers or None, not {}", type_name(bounds[i]));
    }
  }
  if (object.is_undefined()) fail_undefined(object);
  if (!object.is_string() && !object.is_sequence()) {
    fail_invalid("'{}' object cannot be sliced", type_name(object));
  }
  const int64_t step = bounds[2].is_none() ? 1 : bounds[2].as_int();
  if (step == 0) fail_invalid("slice step cannot be zero");
  const int64_t size =
      object.is_string() ? num_characters(object) : static_cast<int64_t>(object.items().size());
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t i = value.as_int();
    if (i < 0) i += size;
    return std::clamp(i, lowest, highest);
  };
  const int64_t start = bound(bounds[0], step > 0 ? 0 : size - 1);
  const int64_t stop = bound(bounds[1], step > 0 ? size : -1);
  if (object.is_string() && step == 1) {
    budget_.read(object.text().size());
    return new_string(std::string(characters(object, start, std::max(start, stop))));
  }
  const std::vector<Value> items = iterate(object);
  std::vector<Value> chosen;
  // The step may be huge: count instead of running past the end.
  const int64_t span = step > 0 ? stop - start : start - stop;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  for (uint64_t k = 0; span > 0 && k < static_cast<uint64_t>(span); k += stride) {
    const auto offset = static_cast<int64_t>(k);
    chosen.push_back(items[static_cast<size_t>(step > 0 ? start + offset : start - offset)]);
    if (stride > static_cast<uint64_t>(span)) break;
  }
  if (object.is(Kind::kTuple)) return new_tuple(std::move(chosen));
  if (object.is(Kind::kList)) return new_list(std::move(chosen));
  std::string text;
  for (const Value& character : chosen) text += character.text();
  return new_string(std::move(text));
}

Value Interpreter::evaluate_filter(const Expr& expr, const Value* value) {
  const Value operand = expr.args[0] == nullptr ? *value
                        : expr.args[0]->kind == ExprKind::kFilter && value != nullptr
                            ? evaluate_filter(*expr.args[0], value)
                            : evaluate(*expr.args[0]);
  CallArgs args = evaluate_arguments(expr);
  line_ = expr.line;
  return apply_filter(expr.text, operand, args);
}

CallArgs Interpreter::evaluate_arguments(const Expr& expr) {
  CallArgs args;
  for (size_t i = 1; i < expr.args.size(); ++i) args.positional.push_back(evaluate(*expr.args[i]));
  if (expr.star != nullptr) {
    for (Value& value : iterate(evaluate(*expr.star))) args.positional.push_back(std::move(value));
  }
  for (const auto& [name, value] : expr.named) args.named.emplace_back(name, evaluate(*value));
  if (expr.double_star != nullptr) {
    const Value named = evaluate(*expr.double_star);
    if (!named.is_dict()) fail_invalid("argument after ** must be a mapping");
    for (const auto& [name, value] : named.get<DictObject>().entries) {
      if (!name.is_string()) fail_invalid("keywords must be strings");
      charge_entries(1);
      budget_.make(name.text().size());
      args.named.emplace_back(name.text(), value);
    }
  }
  return args;
}

Value Interpreter::call(const Value& callee, CallArgs& args) {
  if (callee.is(Kind::kCallable)) {
    const auto& callable = callee.get<CallableObject>();
    charge_operands(callable.self, args);
    return callable.function(*this, args);
  }
  if (callee.is(Kind::kLoop)) {
    const Value recursive = callee.get<LoopObject>().call;
    if (recursive.is_undefined()) fail_invalid("the loop is not recursive");
    return call(recursive, args);
  }
  if (callee.is_undefined()) fail_undefined(callee);
  fail_invalid("'{}' object is not callable", type_name(callee));
}

Value Interpreter::attribute(const Value& value, const std::string& name) {
  // A method found is an object of its own.
  budget_.work(1);
  budget_.read(name.size());
  switch (value.kind()) {
    case Kind::kUndefined:
      fail_undefined(value);
    case Kind::kNamespace:
      if (const Value* found = value.get<NamespaceObject>().attributes.find(name)) return *found;
      break;
    case Kind::kLoop:
      return loop_attribute(value.get<LoopObject>(), name);
    default: {
      Value method = find_method(value, name);
      if (!method.is_undefined() || method.identity() != nullptr) {
        budget_.make(sizeof(CallableObject) + 2 * kObjectBytes);
        return method;
      }
      if (value.is_dict()) {
        if (const Value* found = value.get<DictObject>().find(name)) return *found;
      }
    }
  }
  return undefined("'{} object' has no attribute '{}'", type_name(value), name);
}

Value Interpreter::item(const Value& value, const Value& key) {
  budget_.work(1);
  if (key.is_string()) budget_.read(key.text().size());
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_dict()) {
    if (const Value* found = value.get<DictObject>().find(key)) return *found;
  } else if ((value.is_sequence() || value.is_string()) && key.is_integral()) {
    const int64_t size =
        value.is_string() ? num_characters(value) : static_cast<int64_t>(value.items().size());
    int64_t i = key.as_int();
    if (i < 0) i += size;
    if (i >= 0 && i < size) {
      if (!value.is_string()) return value.items()[static_cast<size_t>(i)];
      if (!value.get<StringObject>().is_ascii) budget_.walk(value.text().size());
      return new_string(std::string(characters(value, i, i + 1)));
    }
  }
  if (key.is_string()) return attribute(value, key.text());
  return undefined("'{} object' has no element {}", type_name(value), to_short_text(key));
}

Value Interpreter::apply_filter(const std::string& name, const Value& value, CallArgs& args) {
  charge_operands(value, args);
  for (const auto find : {find_text_filter, find_list_filter, find_value_filter}) {
    if (const Filter filter = find(name)) return filter(*this, value, args);
  }
  fail_invalid("there is no filter '{}'", shortened(name));
}

bool Interpreter::apply_test(const std::string& name, const Value& value, CallArgs& args) {
  budget_.work(1);
  if (const Test test = find_test(name)) return test(*this, value, args);
  fail_invalid("there is no test '{}'", shortened(name));
}

Arguments::Arguments(const char* function,
                     const CallArgs& args,
                     std::initializer_list<const char*> names)
    : function_(function), values_(names.size(), nullptr) {
  if (args.positional.size() > names.size()) {
    fail_invalid("{}() takes at most {} arguments, got {}", function, names.size(),
                 args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail_invalid("{}() has no argument '{}'", function, name);
    const Value*& slot = values_[static_cast<size_t>(found - names.begin())];
    if (slot != nullptr) fail_invalid("{}() got two values for '{}'", function, name);
    slot = &value;
  }
}

Value Arguments::required(size_t i) const {
  if (!has(i)) fail_invalid("{}() needs its argument {}", function_, i + 1);
  return *values_[i];
}

int64_t Arguments::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (values_[i]->is_undefined()) fail_undefined(*values_[i]);
  if (!values_[i]->is_integral()) {
    fail_invalid("{}(): argument {} must be an integer, not {}", function_, i + 1,
                 type_name(*values_[i]));
  }
  return values_[i]->as_int();
}

std::string Arguments::text(size_t i, std::string_view fallback) const {
  return has(i) ? text(i) : std::string(fallback);
}

std::string Arguments::text(size_t i) const {
  const Value value = required(i);
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) {
    fail_invalid("{}(): argument {} must be a string, not {}", function_, i + 1, type_name(value));
  }
  return value.text();
}

}  // namespace zipage::jinja
