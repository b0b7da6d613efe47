#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

constexpr size_t kMinIndexed = 16;

int depth_above(int child_depth) {
  if (child_depth >= kMaxValueDepth) {
    fail_invalid("values are nested deeper than {} levels", kMaxValueDepth);
  }
  return child_depth + 1;
}

bool can_be_key(const Value& key) {
  if (key.is(Kind::kTuple)) {
    return std::all_of(key.items().begin(), key.items().end(), can_be_key);
  }
  return key.is_string() || key.is_number() || key.is_none();
}

}  // namespace

Value Value::boolean(bool value) {
  Value out(Kind::kBool);
  out.boolean_ = value;
  return out;
}

Value Value::integer(int64_t value) {
  Value out(Kind::kInt);
  out.integer_ = value;
  return out;
}

Value Value::floating(double value) {
  Value out(Kind::kFloat);
  out.floating_ = value;
  return out;
}

Value Value::string(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<ListObject>();
  object->items = std::move(items);
  int depth = 0;
  for (const Value& item : object->items) depth = std::max(depth, item.depth());
  object->depth = depth_above(depth);
  return Value::object(kind, std::move(object));
}

Value Value::generator(std::vector<Value> items) {
  return sequence(Kind::kGenerator, std::move(items));
}

Value Value::undefined(std::string why) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(why);
  return Value::object(Kind::kUndefined, std::move(object));
}

Value Value::callable(std::string name, Function function) {
  return callable(std::move(name), std::move(function), Value());
}

Value Value::callable(std::string name, Function function, const Value& self) {
  auto object = std::make_shared<CallableObject>();
  object->name = std::move(name);
  object->function = std::move(function);
  object->self = self;
  object->depth = depth_above(self.depth());
  return Value::object(Kind::kCallable, std::move(object));
}

Value Value::pointer(Kind kind, Object* object) {
  return Value::object(kind, std::shared_ptr<Object>(std::shared_ptr<void>(), object));
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value out(kind);
  out.object_ = std::move(object);
  return out;
}

const std::string& Value::text() const {
  ZIPAGE_CHECK(kind_ == Kind::kString);
  return get<StringObject>().text;
}

const std::vector<Value>& Value::items() const {
  ZIPAGE_CHECK(is_sequence() || kind_ == Kind::kGenerator);
  return get<ListObject>().items;
}

const Value* DictObject::find(std::string_view key) const {
  const size_t hash = std::hash<std::string_view>()(key);
  const auto matches = [&](size_t i) {
    return entries[i].first.is_string() && entries[i].first.text() == key;
  };
  for (auto it = std::lower_bound(index_.begin(), index_.end(), std::pair(hash, uint32_t{0}));
       it != index_.end() && it->first == hash; ++it) {
    if (matches(it->second)) return &entries[it->second].second;
  }
  for (size_t i = num_indexed_; i < entries.size(); ++i) {
    if (matches(i)) return &entries[i].second;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  for (const auto& [known, value] : entries) {
    if (!known.is_string() && equals(known, key)) return &value;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value) {
  if (!can_be_key(key)) fail_invalid("unhashable type: '{}'", type_name(key));
  depth = std::max(depth, depth_above(std::max(key.depth(), value.depth())));
  if (const Value* known = find(key)) {
    const_cast<Value&>(*known) = std::move(value);  // one of our own entries
    return;
  }
  entries.emplace_back(key, std::move(value));
  // The tail that is searched one by one stays shorter than the square root or so.
  const size_t tail = entries.size() - num_indexed_;
  if (tail < kMinIndexed || tail * tail < entries.size() * 4) return;
  for (size_t i = num_indexed_; i < entries.size(); ++i) {
    if (!entries[i].first.is_string()) continue;
    index_.emplace_back(std::hash<std::string_view>()(entries[i].first.text()),
                        static_cast<uint32_t>(i));
  }
  num_indexed_ = entries.size();
  std::sort(index_.begin(), index_.end());
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kGenerator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return "function";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.get<DictObject>().entries.empty();
    default:
      return true;
  }
}

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), equals);
    case Kind::kDict: {
      const auto& left = a.get<DictObject>();
      const auto& right = b.get<DictObject>();
      return left.entries.size() == right.entries.size() &&
             std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
               const Value* other = right.find(entry.first);
               return other != nullptr && equals(entry.second, *other);
             });
    }
    default:
      return a.identity() == b.identity();
  }
}

bool less_than(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& left = a.items();
    const auto& right = b.items();
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!equals(left[i], right[i])) return less_than(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail_undefined(*value);
  }
  fail_invalid("'{}' and '{}' cannot be ordered", type_name(a), type_name(b));
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t first = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + first, text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  std::string out = negative ? "-" : "";
  const auto num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (num_digits > 1) (out += '.') += digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    return out + std::to_string(std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (num_digits <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - num_digits), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  const auto joined = [&](const char* open, const char* close) {
    std::string out = open;
    for (const Value& item : value.items()) {
      if (out.size() > 1) out += ", ";
      out += to_repr(item);
    }
    return out + close;
  };
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_int() != 0 ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.as_int());
    case Kind::kFloat:
      return float_repr(value.as_double());
    case Kind::kString:
      return string_repr(value.text());
    case Kind::kList:
      return joined("[", "]");
    case Kind::kTuple:
      return joined("(", value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict: {
      std::string out = "{";
      for (const auto& [key, item] : value.get<DictObject>().entries) {
        if (out.size() > 1) out += ", ";
        ((out += to_repr(key)) += ": ") += to_repr(item);
      }
      return out + "}";
    }
    case Kind::kGenerator:
      return "<generator object>";
    case Kind::kNamespace:
      return "<Namespace>";
    case Kind::kLoop:
      return "<LoopContext>";
    case Kind::kCallable:
      return "<function " + value.get<CallableObject>().name + ">";
  }
  return "";
}

}  // namespace zipage::jinja
