#include "tokenizer/jinja/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > interpreter_.max_depth_) {
      --interpreter_.depth_;
      fail_invalid("nested deeper than {} evaluations", interpreter_.max_depth_);
    }
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

// Opens a scope above `parent` and goes back to the scope before at the end.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), before_(interpreter.scope_) {
    if (interpreter.free_scopes_.empty()) {
      scope_ = std::make_unique<Scope>();
    } else {
      scope_ = std::move(interpreter.free_scopes_.back());
      interpreter.free_scopes_.pop_back();
    }
    scope_->parent = parent;
    interpreter.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    interpreter_.scope_ = before_;
    if (scope_->captured) {
      interpreter_.kept_scopes_.push_back(std::move(scope_));
    } else {
      scope_->variables.clear();
      interpreter_.free_scopes_.push_back(std::move(scope_));
    }
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

// Sends output elsewhere for a while.
class Interpreter::Capture {
 public:
  Capture(Interpreter& interpreter, std::string* out)
      : interpreter_(interpreter), before_(std::exchange(interpreter.out_, out)) {}
  ~Capture() { interpreter_.out_ = before_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Interpreter& interpreter_;
  std::string* before_;
};

Interpreter::Interpreter(Value globals, std::time_t now, const Limits& limits)
    : globals_(std::move(globals)), now_(now), max_depth_(limits.max_depth), budget_(limits) {}

void Interpreter::charge_operands(const Value& value, const CallArgs& args) {
  const auto charge = [&](const Value& operand) {
    budget_.work(1);
    if (operand.is_string()) budget_.walk(operand.text().size());
  };
  charge(value);
  for (const Value& operand : args.positional) charge(operand);
  for (const auto& operand : args.named) charge(operand.second);
}

void Interpreter::print(const Value& value) {
  if (value.is_string()) {
    budget_.make(value.text().size());
    *out_ += value.text();
  } else {
    *out_ += to_text(budget_, value);
  }
}

std::string Interpreter::run(const Body& body) {
  std::string out;
  try {
    const Capture capture(*this, &out);
    const ScopeGuard scope(*this, nullptr);
    execute(body);
  } catch (const Error& error) {
    fail(error.code(), "line {}: {}", line_, error.what());
  }
  return out;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const StmtPtr& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

std::string Interpreter::capture(const Body& body) {
  std::string out;
  const Capture capture(*this, &out);
  const ScopeGuard scope(*this, scope_);
  execute(body);
  return out;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement) {
  budget_.work(1);
  const Depth depth(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kData:
      budget_.make(statement.text.size());
      *out_ += statement.text;
      return Flow::kNext;
    case StmtKind::kPrint:
      print(evaluate(*statement.expr));
      return Flow::kNext;
    case StmtKind::kFor:
      return execute_for(statement);
    case StmtKind::kIf:
      return execute(is_true(evaluate(*statement.expr)) ? statement.body : statement.otherwise);
    case StmtKind::kSet:
      assign(*statement.target, evaluate(*statement.expr));
      return Flow::kNext;
    case StmtKind::kSetBlock: {
      Value value = Value::string(capture(statement.body));
      if (statement.expr != nullptr) value = evaluate_filter(*statement.expr, &value);
      assign(*statement.target, std::move(value));
      return Flow::kNext;
    }
    case StmtKind::kMacro:
      scope_->set(statement.text, make_macro(statement));
      return Flow::kNext;
    case StmtKind::kCallBlock: {
      const Value callee = evaluate(*statement.expr->args.front());
      CallArgs args = evaluate_arguments(*statement.expr);
      args.named.emplace_back("caller", make_macro(statement));
      print(call(callee, args));
      return Flow::kNext;
    }
    case StmtKind::kFilterBlock: {
      const Value body = Value::string(capture(statement.body));
      print(evaluate_filter(*statement.expr, &body));
      return Flow::kNext;
    }
    case StmtKind::kWith: {
      std::vector<Value> values;
      for (const auto& [target, expr] : statement.assignments) values.push_back(evaluate(*expr));
      const ScopeGuard scope(*this, scope_);
      for (size_t i = 0; i < values.size(); ++i) {
        assign(*statement.assignments[i].first, std::move(values[i]));
      }
      return execute(statement.body);
    }
    case StmtKind::kScope: {
      const ScopeGuard scope(*this, scope_);
      return execute(statement.body);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_for(const Stmt& statement) {
  run_loop(statement, iterate(evaluate(*statement.expr)), 0);
  return Flow::kNext;
}

void Interpreter::run_loop(const Stmt& statement, std::vector<Value> items, int depth0) {
  if (statement.test != nullptr) {
    std::vector<Value> chosen;
    for (Value& item : items) {
      const ScopeGuard scope(*this, scope_);
      assign(*statement.target, item);
      if (is_true(evaluate(*statement.test))) chosen.push_back(std::move(item));
    }
    items = std::move(chosen);
  }
  if (items.empty()) {
    const ScopeGuard scope(*this, scope_);
    execute(statement.otherwise);
    return;
  }
  budget_.make(sizeof(LoopObject) + kObjectBytes + items.size() * sizeof(Value));
  auto owned = std::make_unique<LoopObject>();
  LoopObject& loop = *owned;
  objects_.push_back(std::move(owned));
  loop.items = std::move(items);
  loop.depth0 = depth0;
  if (statement.recursive) {
    for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
    loop.call = Value::callable(
        "loop", [&statement, depth0, closure = scope_](Interpreter& self, CallArgs& args) {
          if (args.positional.size() != 1) fail_invalid("loop() takes one argument");
          std::string out;
          const Depth depth(self);
          const Capture capture(self, &out);
          const ScopeGuard scope(self, closure);
          self.run_loop(statement, self.iterate(args.positional.front()), depth0 + 1);
          return self.new_string(std::move(out));
        });
  }
  for (size_t i = 0; i < loop.items.size(); ++i) {
    budget_.work(1);
    const ScopeGuard scope(*this, scope_);
    loop.index0 = i;
    assign(*statement.target, loop.items[i]);
    scope_->set("loop", Value::pointer(Kind::kLoop, &loop));
    if (execute(statement.body) == Flow::kBreak) break;
  }
  loop.call = Value();
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    scope_->set(target.text, std::move(value));
  } else if (target.kind == ExprKind::kAttribute) {
    const Value object = evaluate(*target.args.front());
    if (!object.is(Kind::kNamespace)) {
      fail_invalid("cannot assign attribute '{}' on non-namespace object", target.text);
    }
    charge_entries(1);
    budget_.make(target.text.size());
    object.get<NamespaceObject>().attributes.set(Value::string(target.text), std::move(value));
  } else {
    const std::vector<Value> parts = iterate(value);
    if (parts.size() != target.args.size()) {
      fail_invalid("cannot unpack {} values into {} names", parts.size(), target.args.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.args[i], parts[i]);
  }
}

Value Interpreter::make_macro(const Stmt& statement) {
  // The closure's scope is kept too.
  budget_.make(sizeof(CallableObject) + sizeof(Scope) + 2 * kObjectBytes);
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
  return Value::callable(statement.text,
                         [&statement, closure = scope_](Interpreter& self, CallArgs& args) {
                           return self.run_macro(statement, closure, args);
                         });
}

Value Interpreter::run_macro(const Stmt& statement, Scope* closure, CallArgs& args) {
  const Depth depth(*this);
  std::string out;
  const Capture capture(*this, &out);
  const ScopeGuard scope(*this, closure);
  bind_parameters(statement, args);
  execute(statement.body);
  return Value::string(std::move(out));
}

void Interpreter::bind_parameters(const Stmt& statement, CallArgs& args) {
  const size_t count = statement.parameters.size();
  budget_.work(count * (1 + args.named.size()) / 4);
  std::vector<bool> used(args.named.size(), false);
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = statement.parameters[i];
    const auto named = std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) {
      return entry.first == parameter.name;
    });
    if (named != args.named.end()) used[static_cast<size_t>(named - args.named.begin())] = true;
    if (i < args.positional.size()) {
      if (named != args.named.end()) {
        fail_invalid("macro '{}' got two values for '{}'", statement.text, parameter.name);
      }
      scope_->set(parameter.name, args.positional[i]);
    } else if (named != args.named.end()) {
      scope_->set(parameter.name, named->second);
    } else if (parameter.fallback != nullptr) {
      scope_->set(parameter.name, evaluate(*parameter.fallback));
    } else {
      scope_->set(parameter.name,
                  Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
  if (statement.uses_varargs) {
    std::vector<Value> rest;
    if (args.positional.size() > count) {
      rest.assign(args.positional.begin() + static_cast<ptrdiff_t>(count), args.positional.end());
    }
    scope_->set("varargs", new_tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    fail_invalid("macro '{}' takes not more than {} argument(s)", statement.text, count);
  }
  DictBuilder kwargs;
  bool has_caller = false;
  for (size_t i = 0; i < args.named.size(); ++i) {
    if (used[i]) continue;
    const auto& [name, value] = args.named[i];
    if (name == "caller" && statement.uses_caller) {
      scope_->set("caller", value);
      has_caller = true;
    } else if (statement.uses_kwargs) {
      charge_entries(1);
      kwargs.set(name, value);
    } else {
      fail_invalid("macro '{}' takes no keyword argument '{}'", statement.text, name);
    }
  }
  if (statement.uses_caller && !has_caller) {
    scope_->set("caller", Value::undefined("No caller defined"));
  }
  if (statement.uses_kwargs) scope_->set("kwargs", kwargs.finish());
}

Value Interpreter::new_namespace() {
  budget_.make(sizeof(NamespaceObject) + kObjectBytes);
  objects_.push_back(std::make_unique<NamespaceObject>());
  return Value::pointer(Kind::kNamespace, objects_.back().get());
}

std::vector<Value> Interpreter::iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
      charge_items(value.items().size());
      return value.items();
    case Kind::kGenerator: {
      auto& generator = value.get<ListObject>();
      if (std::exchange(generator.consumed, true)) return {};
      charge_items(generator.items.size());
      return std::move(generator.items);
    }
    case Kind::kString: {
      const auto count = static_cast<size_t>(num_characters(value));
      charge_items(count);
      budget_.make(count * (sizeof(StringObject) + kObjectBytes));
      return split_characters(value.text());
    }
    case Kind::kDict: {
      const auto& entries = value.get<DictObject>().entries;
      charge_items(entries.size());
      std::vector<Value> keys;
      keys.reserve(entries.size());
      for (const auto& entry : entries) keys.push_back(entry.first);
      return keys;
    }
    default:
      fail_invalid("'{}' object is not iterable", type_name(value));
  }
}

}  // namespace zipage::jinja
