// The functions that every template can call.
#include <algorithm>
#include <ctime>
#include <memory>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

constexpr uint64_t kMaxRange = 100'000;  // as the usual set-up limits it

Value range(Interpreter& interpreter, CallArgs& call_args) {
  const Arguments args("range", call_args, {"a", "b", "c"});
  args.required(0);
  const int64_t start = args.has(1) ? args.integer(0, 0) : 0;
  const int64_t stop = args.has(1) ? args.integer(1, 0) : args.integer(0, 0);
  const int64_t step = args.integer(2, 1);
  if (step == 0) fail_invalid("range() arg 3 must not be zero");
  const auto magnitude = [](int64_t value) {
    return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  };
  const bool any = step > 0 ? start < stop : start > stop;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t count = any ? (distance - 1) / magnitude(step) + 1 : 0;
  if (count > kMaxRange) {
    fail_invalid("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  interpreter.budget().work(count / 4);
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    items.push_back(Value::integer(start + i * step));
  }
  return interpreter.new_list(std::move(items));
}

// dict(mapping, key=value ...), into `set`.
template <typename Set>
void take_entries(Interpreter& interpreter,
                  const char* name,
                  const CallArgs& args,
                  const Set& set) {
  if (args.positional.size() > 1) fail_invalid("{}() takes at most one positional argument", name);
  const auto set_charged = [&](const Value& key, const Value& value) {
    interpreter.charge_entries(1);
    if (key.is_string()) interpreter.budget().read(key.text().size());
    set(key, value);
  };
  if (!args.positional.empty()) {
    const Value& from = args.positional.front();
    if (from.is_dict()) {
      for (const auto& [key, value] : from.get<DictObject>().entries) set_charged(key, value);
    } else {
      for (const Value& pair : interpreter.iterate(from)) {
        const std::vector<Value> parts = interpreter.iterate(pair);
        if (parts.size() != 2) fail_invalid("{}() needs pairs", name);
        set_charged(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [key, value] : args.named) set_charged(Value::string(key), value);
}

Value make_namespace(Interpreter& interpreter, CallArgs& args) {
  Value out = interpreter.new_namespace();
  auto& attributes = out.get<NamespaceObject>().attributes;
  take_entries(interpreter, "namespace", args,
               [&](const Value& key, const Value& value) { attributes.set(key, value); });
  return out;
}

Value make_dict(Interpreter& interpreter, CallArgs& args) {
  DictBuilder out;
  take_entries(interpreter, "dict", args,
               [&](const Value& key, const Value& value) { out.set(key, value); });
  return out.finish();
}

Value raise_exception(Interpreter& interpreter, CallArgs& args) {
  if (args.positional.empty()) fail_invalid("raise_exception");
  fail_invalid("{}", shortened(to_text(interpreter.budget(), args.positional.front())));
}

Value strftime_now(Interpreter& interpreter, CallArgs& call_args) {
  const Arguments args("strftime_now", call_args, {"format"});
  const std::string format = args.text(0);
  if (format.empty()) return Value::string("");
  const std::time_t now = interpreter.now();
  std::tm parts = {};
  localtime_r(&now, &parts);
  // A byte more than the text, because strftime says 0 for "too long" and for "empty".
  const size_t room = 64 + 16 * format.size();
  interpreter.budget().make(room);
  std::string out(room, '\0');
  out.resize(std::strftime(out.data(), out.size(), (format + " ").c_str(), &parts));
  if (!out.empty()) out.pop_back();
  return Value::string(std::move(out));
}

Value joiner(Interpreter&, CallArgs& call_args) {
  const Arguments args("joiner", call_args, {"sep"});
  const Value separator = Value::string(args.text(0, ", "));
  return Value::callable(
      "joiner", [separator, used = std::make_shared<bool>(false)](Interpreter&, CallArgs&) {
        return std::exchange(*used, true) ? separator : Value::string("");
      });
}

}  // namespace

Value find_global(std::string_view name) {
  if (name == "range") return Value::callable("range", range);
  if (name == "namespace") return Value::callable("namespace", make_namespace);
  if (name == "dict") return Value::callable("dict", make_dict);
  if (name == "raise_exception") return Value::callable("raise_exception", raise_exception);
  if (name == "strftime_now") return Value::callable("strftime_now", strftime_now);
  if (name == "joiner") return Value::callable("joiner", joiner);
  return Value();
}

}  // namespace zipage::jinja
