// Runs a parsed template.
#pragma once

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/budget.h"
#include "tokenizer/jinja/value.h"

namespace zipage::jinja {

// At most some hundred bytes of a text, for messages.
inline std::string shortened(std::string text) {
  constexpr size_t kMaxBytes = 300;
  if (text.size() <= kMaxBytes) return text;
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Variables by name; the innermost scope that has a name decides.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;
  bool captured = false;  // a macro may come back to it

  Value* find(std::string_view name) {
    for (auto& [known, value] : variables) {
      if (known == name) return &value;
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    if (Value* known = find(name)) {
      *known = std::move(value);
    } else {
      variables.emplace_back(std::string(name), std::move(value));
    }
  }
};

// One rendering. Not thread-safe; the body must outlive it.
class Interpreter {
 public:
  // `globals`: a dict of variables. `now`: what strftime_now() tells.
  Interpreter(Value globals, std::time_t now, const Limits& limits);
  // Throws Error naming the line.
  std::string run(const Body& body);

  Value call(const Value& callee, CallArgs& args);
  Value apply_filter(const std::string& name, const Value& value, CallArgs& args);
  bool apply_test(const std::string& name, const Value& value, CallArgs& args);
  // value.name and value[key], by Jinja's rules.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  // The items that a loop would see.
  std::vector<Value> iterate(const Value& value);
  Value new_namespace();
  std::time_t now() const { return now_; }

  Budget& budget() { return budget_; }
  Value new_string(std::string text) {
    budget_.make(text.size() + sizeof(StringObject) + kObjectBytes);
    return Value::string(std::move(text));
  }
  Value new_list(std::vector<Value> items) { return Value::list(charged(std::move(items))); }
  Value new_tuple(std::vector<Value> items) { return Value::tuple(charged(std::move(items))); }
  Value new_generator(std::vector<Value> items) {
    return Value::generator(charged(std::move(items)));
  }
  // Before `count` entries are put into a dict.
  void charge_entries(size_t count) { budget_.make(count * kEntryBytes); }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Depth;
  class ScopeGuard;
  class Capture;

  // What a shared object takes beside itself: counts and the allocator's own.
  static constexpr size_t kObjectBytes = 48;
  static constexpr size_t kEntryBytes = 160;

  std::vector<Value> charged(std::vector<Value> items) {
    budget_.make(items.size() * sizeof(Value) + sizeof(ListObject) + kObjectBytes);
    return items;
  }
  // Texts are read by nearly everything that is done with them.
  void charge_operands(const Value& value, const CallArgs& args);
  // Before `count` values are copied and visited.
  void charge_items(size_t count) {
    budget_.make(count * sizeof(Value));
    budget_.work(count / 4);
  }
  void print(const Value& value);
  // What stands in for a value that is not there; `format` tells why.
  template <typename... Args>
  Value undefined(fmt::format_string<Args...> format, Args&&... args) {
    std::string why = shortened(fmt::format(format, std::forward<Args>(args)...));
    budget_.make(why.size() + sizeof(StringObject) + kObjectBytes);
    return Value::undefined(std::move(why));
  }
  Flow execute(const Body& body);
  Flow execute(const Stmt& statement);
  Flow execute_for(const Stmt& statement);
  void run_loop(const Stmt& statement, std::vector<Value> items, int depth0);
  std::string capture(const Body& body);
  void assign(const Expr& target, Value value);
  Value make_macro(const Stmt& statement);
  Value run_macro(const Stmt& statement, Scope* closure, CallArgs& args);
  void bind_parameters(const Stmt& statement, CallArgs& args);

  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  // `value`: of the body that a chain of filters without an operand applies to.
  Value evaluate_filter(const Expr& expr, const Value* value);
  CallArgs evaluate_arguments(const Expr& expr);

  Value globals_;
  std::time_t now_;
  int max_depth_;
  Budget budget_;
  int depth_ = 0;
  int line_ = 0;
  std::string* out_ = nullptr;
  Scope* scope_ = nullptr;
  std::vector<std::unique_ptr<Scope>> free_scopes_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<std::unique_ptr<Object>> objects_;  // namespaces and loops
};

// The arguments of a function by position or name.
class Arguments {
 public:
  Arguments(const char* function, const CallArgs& args, std::initializer_list<const char*> names);
  bool has(size_t i) const { return values_[i] != nullptr; }
  Value get(size_t i) const { return has(i) ? *values_[i] : Value(); }
  Value required(size_t i) const;
  int64_t integer(size_t i, int64_t fallback) const;
  bool boolean(size_t i, bool fallback) const { return has(i) ? is_true(*values_[i]) : fallback; }
  std::string text(size_t i, std::string_view fallback) const;
  std::string text(size_t i) const;  // required

 private:
  const char* function_;
  std::vector<const Value*> values_;
};

// operators.cc
Value arithmetic(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
bool contains(Interpreter& interpreter, const Value& container, const Value& item);
// format.cc: text % values, and text.format(...)
std::string percent_format(Interpreter& interpreter, const std::string& text, const Value& values);
std::string brace_format(Interpreter& interpreter, const std::string& text, const CallArgs& args);
// methods.cc: undefined if there is no such method.
Value find_method(const Value& self, const std::string& name);
// string_methods.cc
Value find_string_method(const Value& self, const std::string& name);
// filters*.cc: the filter, or null.
using Filter = Value (*)(Interpreter&, const Value&, const CallArgs&);
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_value_filter(std::string_view name);
// tests.cc
using Test = bool (*)(Interpreter&, const Value&, const CallArgs&);
Test find_test(std::string_view name);
// globals.cc: range, namespace ...; undefined if there is none of the name.
Value find_global(std::string_view name);
// tojson.cc
Value tojson_filter(Interpreter& interpreter, const Value& value, const CallArgs& args);

// loop_object.cc: the variable "loop".
struct LoopObject : Object {
  std::vector<Value> items;
  size_t index0 = 0;
  int depth0 = 0;
  bool has_changed_value = false;
  Value changed_value;
  Value call;  // of a recursive loop
};
Value loop_attribute(LoopObject& loop, const std::string& name);

}  // namespace zipage::jinja
