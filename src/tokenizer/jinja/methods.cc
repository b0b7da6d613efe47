#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

Value bound(const Value& self, const std::string& name, Value::Function function) {
  return Value::callable(name, std::move(function), self);
}

// What the sandbox of the usual set-up refuses.
Value unsafe(const Value& self, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of '" + type_name(self) +
                          "' object is unsafe.");
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value find_dict_method(const Value& self, const std::string& name) {
  if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"})) {
    return unsafe(self, name);
  }
  if (name == "get") {
    return bound(self, name, [self](Interpreter&, CallArgs& call_args) {
      const Arguments args("get", call_args, {"key", "default"});
      if (const Value* found = self.get<DictObject>().find(args.required(0))) return *found;
      return args.has(1) ? args.get(1) : Value::none();
    });
  }
  if (name == "items") {
    return bound(self, name, [self](Interpreter& interpreter, CallArgs&) {
      std::vector<Value> items;
      for (const auto& [key, value] : self.get<DictObject>().entries) {
        items.push_back(interpreter.new_tuple({key, value}));
      }
      return interpreter.new_list(std::move(items));
    });
  }
  if (name == "keys") {
    return bound(self, name, [self](Interpreter& interpreter, CallArgs&) {
      return interpreter.new_list(interpreter.iterate(self));
    });
  }
  if (name == "values") {
    return bound(self, name, [self](Interpreter& interpreter, CallArgs&) {
      std::vector<Value> values;
      for (const auto& entry : self.get<DictObject>().entries) values.push_back(entry.second);
      return interpreter.new_list(std::move(values));
    });
  }
  if (name == "copy") return bound(self, name, [self](Interpreter&, CallArgs&) { return self; });
  return Value();
}

Value find_list_method(const Value& self, const std::string& name) {
  if (self.is(Kind::kList) && is_one_of(name, {"append", "clear", "extend", "insert", "pop",
                                               "remove", "reverse", "sort"})) {
    return unsafe(self, name);
  }
  if (name == "index") {
    return bound(self, name, [self](Interpreter& interpreter, CallArgs& call_args) {
      const Arguments args("index", call_args, {"value"});
      const auto& items = self.items();
      for (size_t i = 0; i < items.size(); ++i) {
        if (equals(interpreter.budget(), items[i], args.required(0)))
          return Value::integer(static_cast<int64_t>(i));
      }
      fail_invalid("{} is not in the list", to_short_text(args.required(0)));
    });
  }
  if (name == "count") {
    return bound(self, name, [self](Interpreter& interpreter, CallArgs& call_args) {
      const Arguments args("count", call_args, {"value"});
      const Value wanted = args.required(0);
      return Value::integer(std::count_if(
          self.items().begin(), self.items().end(),
          [&](const Value& item) { return equals(interpreter.budget(), item, wanted); }));
    });
  }
  if (name == "copy" && self.is(Kind::kList)) {
    return bound(self, name, [self](Interpreter&, CallArgs&) { return self; });
  }
  return Value();
}

}  // namespace

Value find_method(const Value& self, const std::string& name) {
  switch (self.kind()) {
    case Kind::kString:
      return find_string_method(self, name);
    case Kind::kDict:
      return find_dict_method(self, name);
    case Kind::kList:
    case Kind::kTuple:
      return find_list_method(self, name);
    case Kind::kCallable:
      if (name == "name") return Value::string(self.get<CallableObject>().name);
      return Value();
    default:
      return Value();
  }
}

Value loop_attribute(LoopObject& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index0);
  const auto length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index0 - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index0 + 1]
                              : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return Value::callable("cycle", [&loop](Interpreter&, CallArgs& args) {
      if (args.positional.empty()) fail_invalid("no items for cycling given");
      return args.positional[loop.index0 % args.positional.size()];
    });
  }
  if (name == "changed") {
    return Value::callable("changed", [&loop](Interpreter& interpreter, CallArgs& args) {
      Value now = interpreter.new_tuple(args.positional);
      if (loop.has_changed_value && equals(interpreter.budget(), loop.changed_value, now))
        return Value::boolean(false);
      loop.changed_value = std::move(now);
      loop.has_changed_value = true;
      return Value::boolean(true);
    });
  }
  return Value::undefined("'LoopContext object' has no attribute '" + name + "'");
}

}  // namespace zipage::jinja
