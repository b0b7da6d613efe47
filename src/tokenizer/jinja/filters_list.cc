#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

// "a.b.0" of a value, as the filters' argument "attribute" means it.
Value look_up(Interpreter& interpreter, Value value, const Value& path) {
  if (path.is_integral()) return interpreter.item(value, path);
  if (!path.is_string()) fail_invalid("an attribute must be a name or a number");
  std::string_view rest = path.text();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool numeric =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    interpreter.budget().read(part.size());
    value =
        interpreter.item(value, numeric ? Value::integer(std::stoi(part)) : Value::string(part));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value folded(Interpreter& interpreter, const Value& value, bool case_sensitive) {
  if (!value.is_string() || case_sensitive) return value;
  interpreter.budget().walk(value.text().size());
  return interpreter.new_string(to_lower(value.text()));
}

Value first(Interpreter& interpreter, const Value& value, const CallArgs&) {
  const std::vector<Value> items = interpreter.iterate(value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& interpreter, const Value& value, const CallArgs&) {
  if (value.is(Kind::kGenerator)) fail_invalid("'generator' object is not reversible");
  const std::vector<Value> items = interpreter.iterate(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value length(Interpreter&, const Value& value, const CallArgs&) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Value::integer(0);
    case Kind::kString:
      return Value::integer(num_characters(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return Value::integer(static_cast<int64_t>(value.items().size()));
    case Kind::kDict:
      return Value::integer(static_cast<int64_t>(value.get<DictObject>().entries.size()));
    case Kind::kLoop:
      return Value::integer(static_cast<int64_t>(value.get<LoopObject>().items.size()));
    default:
      fail_invalid("object of type '{}' has no len()", type_name(value));
  }
}

Value list(Interpreter& interpreter, const Value& value, const CallArgs&) {
  return interpreter.new_list(interpreter.iterate(value));
}

Value join(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("join", call_args, {"d", "attribute"});
  Budget& budget = interpreter.budget();
  const std::string separator = args.has(0) ? to_text(budget, args.get(0)) : "";
  std::string out;
  bool is_first = true;
  for (Value& item : interpreter.iterate(value)) {
    if (args.has(1) && !args.get(1).is_none()) {
      item = look_up(interpreter, std::move(item), args.get(1));
    }
    const std::string text = to_text(budget, item);
    budget.make(separator.size() + text.size());
    if (!is_first) out += separator;
    is_first = false;
    out += text;
  }
  return interpreter.new_string(std::move(out));
}

Value reverse(Interpreter& interpreter, const Value& value, const CallArgs&) {
  std::vector<Value> items = interpreter.iterate(value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return interpreter.new_generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.text();
  return interpreter.new_string(std::move(out));
}

Value sort(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("sort", call_args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = args.boolean(1, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : interpreter.iterate(value)) {
    Value key = item;
    if (args.has(2) && !args.get(2).is_none()) {
      std::vector<Value> parts;
      if (args.get(2).is_string()) {
        std::string_view rest = args.get(2).text();
        for (;;) {
          const size_t comma = rest.find(',');
          parts.push_back(
              folded(interpreter,
                     look_up(interpreter, item, Value::string(std::string(rest.substr(0, comma)))),
                     case_sensitive));
          if (comma == std::string_view::npos) break;
          rest.remove_prefix(comma + 1);
        }
      } else {
        parts.push_back(
            folded(interpreter, look_up(interpreter, item, args.get(2)), case_sensitive));
      }
      key = parts.size() == 1 ? parts.front() : interpreter.new_list(std::move(parts));
    }
    interpreter.budget().make(2 * sizeof(Value));
    keyed.emplace_back(folded(interpreter, key, case_sensitive), std::move(item));
  }
  const bool backwards = args.boolean(0, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less_than(interpreter.budget(), b.first, a.first)
                     : less_than(interpreter.budget(), a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return interpreter.new_list(std::move(out));
}

Value unique(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("unique", call_args, {"case_sensitive", "attribute"});
  DictObject seen;
  std::vector<Value> out;
  for (Value& item : interpreter.iterate(value)) {
    const bool by_attribute = args.has(1) && !args.get(1).is_none();
    const Value key =
        folded(interpreter, by_attribute ? look_up(interpreter, item, args.get(1)) : item,
               args.boolean(0, false));
    if (seen.find(key) != nullptr) continue;
    interpreter.charge_entries(1);
    seen.set(key, Value::none());
    out.push_back(std::move(item));
  }
  return interpreter.new_generator(std::move(out));
}

Value map(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  std::vector<Value> out;
  if (!is_true(value))
    return interpreter.new_generator({});  // none and the like are as good as empty
  if (args.positional.empty()) {
    const Arguments named("map", args, {"attribute", "default"});
    const Value path = named.required(0);
    for (Value& item : interpreter.iterate(value)) {
      Value found = look_up(interpreter, std::move(item), path);
      if (found.is_undefined() && named.has(1)) found = named.get(1);
      out.push_back(std::move(found));
    }
  } else {
    if (!args.positional.front().is_string()) fail_invalid("map() needs the name of a filter");
    const std::string name = args.positional.front().text();
    CallArgs rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
    for (const Value& item : interpreter.iterate(value)) {
      out.push_back(interpreter.apply_filter(name, item, rest));
    }
  }
  return interpreter.new_generator(std::move(out));
}

// select, reject, selectattr and rejectattr.
template <bool kWanted, bool kByAttribute>
Value select(Interpreter& interpreter, const Value& value, const CallArgs& args) {
  constexpr size_t kFirst = kByAttribute ? 1 : 0;
  if (args.positional.size() < kFirst) fail_invalid("Missing parameter for attribute name");
  std::string test;
  CallArgs rest;
  if (args.positional.size() > kFirst) {
    if (!args.positional[kFirst].is_string()) fail_invalid("select() needs the name of a test");
    test = args.positional[kFirst].text();
    rest.positional.assign(args.positional.begin() + kFirst + 1, args.positional.end());
    rest.named = args.named;
  }
  std::vector<Value> out;
  if (!is_true(value)) return interpreter.new_generator({});
  for (Value& item : interpreter.iterate(value)) {
    const Value tested = kByAttribute ? look_up(interpreter, item, args.positional.front()) : item;
    const bool holds = test.empty() ? is_true(tested) : interpreter.apply_test(test, tested, rest);
    if (holds == kWanted) out.push_back(std::move(item));
  }
  return interpreter.new_generator(std::move(out));
}

Value batch(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("batch", call_args, {"linecount", "fill_with"});
  const int64_t size = args.integer(0, 0);
  if (size < 1) fail_invalid("batch() needs a positive size");
  std::vector<Value> out;
  std::vector<Value> row;
  for (Value& item : interpreter.iterate(value)) {
    row.push_back(std::move(item));
    if (static_cast<int64_t>(row.size()) == size)
      out.push_back(interpreter.new_list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (args.has(1) && !args.get(1).is_none()) {
      const auto missing = static_cast<size_t>(size) - row.size();
      interpreter.budget().make(std::min<size_t>(missing, size_t{1} << 50) * sizeof(Value));
      row.insert(row.end(), missing, args.get(1));
    }
    out.push_back(interpreter.new_list(std::move(row)));
  }
  return interpreter.new_generator(std::move(out));
}

Value slice(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("slice", call_args, {"slices", "fill_with"});
  const int64_t slices = args.integer(0, 0);
  if (slices < 1) fail_invalid("slice() needs a positive number");
  interpreter.budget().make(static_cast<size_t>(std::min<int64_t>(slices, int64_t{1} << 50)) *
                            (sizeof(Value) + sizeof(ListObject)));
  const std::vector<Value> items = interpreter.iterate(value);
  const auto count = static_cast<int64_t>(items.size());
  const int64_t per_slice = count / slices;
  const int64_t with_extra = count % slices;
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t end = at + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + end);
    if (args.has(1) && !args.get(1).is_none() && i >= with_extra && with_extra > 0) {
      part.push_back(args.get(1));
    }
    out.push_back(interpreter.new_list(std::move(part)));
    at = end;
  }
  return interpreter.new_generator(std::move(out));
}

Value groupby(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("groupby", call_args, {"attribute", "default", "case_sensitive"});
  const Value path = args.required(0);
  struct Entry {
    Value key;
    Value shown;
    Value item;
  };
  std::vector<Entry> entries;
  for (Value& item : interpreter.iterate(value)) {
    Value key = look_up(interpreter, item, path);
    if (key.is_undefined() && args.has(1)) key = args.get(1);
    entries.push_back({folded(interpreter, key, args.boolean(2, false)), key, std::move(item)});
  }
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return less_than(interpreter.budget(), a.key, b.key);
  });
  std::vector<Value> out;
  for (size_t i = 0; i < entries.size();) {
    std::vector<Value> group;
    size_t end = i;
    while (end < entries.size() && equals(interpreter.budget(), entries[end].key, entries[i].key)) {
      group.push_back(entries[end++].item);
    }
    out.push_back(
        interpreter.new_tuple({entries[i].shown, interpreter.new_list(std::move(group))}));
    i = end;
  }
  return interpreter.new_list(std::move(out));
}

Value sum(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("sum", call_args, {"attribute", "start"});
  Value total = args.has(1) ? args.get(1) : Value::integer(0);
  for (Value& item : interpreter.iterate(value)) {
    if (args.has(0) && !args.get(0).is_none()) {
      item = look_up(interpreter, std::move(item), args.get(0));
    }
    total = arithmetic(interpreter, "+", total, item);
  }
  return total;
}

template <bool kLargest>
Value extreme(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args(kLargest ? "max" : "min", call_args, {"case_sensitive", "attribute"});
  const bool case_sensitive = args.boolean(0, false);
  Value best;
  Value best_key;
  bool any = false;
  for (Value& item : interpreter.iterate(value)) {
    const bool by_attribute = args.has(1) && !args.get(1).is_none();
    Value key = folded(interpreter, by_attribute ? look_up(interpreter, item, args.get(1)) : item,
                       case_sensitive);
    const bool better = !any || (kLargest ? less_than(interpreter.budget(), best_key, key)
                                          : less_than(interpreter.budget(), key, best_key));
    if (!better) continue;
    any = true;
    best = std::move(item);
    best_key = std::move(key);
  }
  return any ? best : Value::undefined("No aggregated item, sequence was empty.");
}

Value dictsort(Interpreter& interpreter, const Value& value, const CallArgs& call_args) {
  const Arguments args("dictsort", call_args, {"case_sensitive", "by", "reverse"});
  if (!value.is_dict()) fail_invalid("dictsort() needs a dict, not {}", type_name(value));
  const std::string by = args.text(1, "key");
  if (by != "key" && by != "value")
    fail_invalid("dictsort(): by is '{}'; it must be key or value", by);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.get<DictObject>().entries) {
    keyed.emplace_back(folded(interpreter, by == "key" ? key : item, args.boolean(0, false)),
                       interpreter.new_tuple({key, item}));
  }
  const bool backwards = args.boolean(2, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less_than(interpreter.budget(), b.first, a.first)
                     : less_than(interpreter.budget(), a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return interpreter.new_list(std::move(out));
}

Value items(Interpreter& interpreter, const Value& value, const CallArgs&) {
  std::vector<Value> out;
  if (value.is_undefined()) return interpreter.new_generator(std::move(out));
  if (!value.is_dict()) fail_invalid("Can only get item pairs from a mapping.");
  for (const auto& [key, item] : value.get<DictObject>().entries) {
    out.push_back(interpreter.new_tuple({key, item}));
  }
  return interpreter.new_generator(std::move(out));
}

constexpr std::array<std::pair<std::string_view, Filter>, 22> kFilters = {{
    {"first", first},
    {"last", last},
    {"length", length},
    {"count", length},
    {"list", list},
    {"join", join},
    {"reverse", reverse},
    {"sort", sort},
    {"unique", unique},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"batch", batch},
    {"slice", slice},
    {"groupby", groupby},
    {"sum", sum},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"dictsort", dictsort},
    {"items", items},
}};

}  // namespace

Filter find_list_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace zipage::jinja
