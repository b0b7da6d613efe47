#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "tokenizer/jinja/text.h"

namespace zipage::jinja {
namespace {

// Dicts of fewer entries are searched one by one.
constexpr size_t kMinHashed = 9;
constexpr int kMaxKeyValues = 100;
constexpr size_t kMaxShownBytes = 80;

int depth_above(int child_depth) {
  if (child_depth >= kMaxValueDepth) {
    fail_invalid("values are nested deeper than {} levels", kMaxValueDepth);
  }
  return child_depth + 1;
}

bool can_be_key(const Value& key, int& values_left) {
  if (--values_left < 0) return false;
  if (key.is(Kind::kTuple)) {
    return std::all_of(key.items().begin(), key.items().end(),
                       [&](const Value& item) { return can_be_key(item, values_left); });
  }
  return key.is_string() || key.is_number() || key.is_none();
}

bool can_be_key(const Value& key) {
  int values_left = kMaxKeyValues;
  return can_be_key(key, values_left);
}

// Of values that can be keys.
bool same_key(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.is_none()) return true;
  return a.items().size() == b.items().size() &&
         std::equal(a.items().begin(), a.items().end(), b.items().begin(), same_key);
}

uint64_t mixed(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_text(std::string_view text, uint64_t seed) {
  uint64_t hash = mixed(text.size() ^ seed, 0xa0761d6478bd642fULL);
  for (size_t i = 0; i < text.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min(sizeof word, text.size() - i));
    hash = mixed(hash ^ word, seed | 1);
  }
  return mixed(hash ^ seed, 0xe7037ed1a0b428dbULL);
}

// 1, 1.0 and true are one key.
uint64_t hash_key(const Value& key, uint64_t seed) {
  if (key.is_string()) return hash_text(key.text(), seed);
  if (key.is_none()) return mixed(seed, 3);
  if (key.is(Kind::kTuple)) {
    uint64_t hash = mixed(seed, 5);
    for (const Value& item : key.items()) hash = mixed(hash ^ hash_key(item, seed), seed | 1);
    return hash;
  }
  const double number = key.as_double();
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  if (number == 0.0) bits = 0;  // -0.0
  return mixed(bits ^ seed, 0x8ebc6af09c88c6e3ULL);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
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
  object->is_ascii = zipage::jinja::is_ascii(object->text);
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

uint64_t DictObject::seed() const {
  return mixed(reinterpret_cast<uintptr_t>(this), 0x9e3779b97f4a7c15ULL);
}

template <typename Matches>
const Value* DictObject::find_hashed(uint64_t hash, const Matches& matches) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] != 0; i = (i + 1) & mask) {
    const size_t entry = slots_[i] - 1;
    if (hashes_[entry] == hash && matches(entries[entry].first)) return &entries[entry].second;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  const auto matches = [&](const Value& known) { return known.is_string() && known.text() == key; };
  if (!slots_.empty()) return find_hashed(hash_text(key, seed()), matches);
  for (const auto& [known, value] : entries) {
    if (matches(known)) return &value;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  if (!can_be_key(key)) return nullptr;
  const auto matches = [&](const Value& known) { return same_key(known, key); };
  if (!slots_.empty()) return find_hashed(hash_key(key, seed()), matches);
  for (const auto& [known, value] : entries) {
    if (matches(known)) return &value;
  }
  return nullptr;
}

void DictObject::grow() {
  slots_.assign(std::bit_ceil(entries.size() * 4), 0);
  hashes_.resize(entries.size());
  const size_t mask = slots_.size() - 1;
  for (size_t entry = 0; entry < entries.size(); ++entry) {
    hashes_[entry] = hash_key(entries[entry].first, seed());
    size_t i = hashes_[entry] & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<uint32_t>(entry + 1);
  }
}

void DictObject::set(const Value& key, Value value) {
  if (!can_be_key(key)) {
    if (!key.is(Kind::kTuple)) fail_invalid("unhashable type: '{}'", type_name(key));
    fail_invalid("a tuple of unhashable values, or of more than {}, is no key", kMaxKeyValues);
  }
  depth = std::max(depth, depth_above(std::max(key.depth(), value.depth())));
  if (const Value* known = find(key)) {
    const_cast<Value&>(*known) = std::move(value);  // one of our own entries
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() < kMinHashed) return;
  if (entries.size() * 2 > slots_.size()) {
    grow();
    return;
  }
  hashes_.push_back(hash_key(key, seed()));
  const size_t mask = slots_.size() - 1;
  size_t i = hashes_.back() & mask;
  while (slots_[i] != 0) i = (i + 1) & mask;
  slots_[i] = static_cast<uint32_t>(entries.size());
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

bool equals(Budget& budget, const Value& a, const Value& b) {
  budget.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  // As Python sees it, a value in a container equals itself, NaN included.
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      budget.read(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& left, const Value& right) {
                          return equals(budget, left, right);
                        });
    case Kind::kDict: {
      const auto& left = a.get<DictObject>();
      const auto& right = b.get<DictObject>();
      return left.entries.size() == right.entries.size() &&
             std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
               if (entry.first.is_string()) budget.read(entry.first.text().size());
               const Value* other = right.find(entry.first);
               return other != nullptr && equals(budget, entry.second, *other);
             });
    }
    default:
      return false;
  }
}

bool less_than(Budget& budget, const Value& a, const Value& b) {
  budget.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) {
    budget.read(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& left = a.items();
    const auto& right = b.items();
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!equals(budget, left[i], right[i])) return less_than(budget, left[i], right[i]);
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

namespace {

void append_repr(Budget& budget, const Value& value, std::string& out) {
  const auto append = [&](std::string_view text) {
    budget.make(text.size());
    out += text;
  };
  const auto append_items = [&](const char* open, const char* close) {
    append(open);
    bool first = true;
    for (const Value& item : value.items()) {
      if (!first) append(", ");
      first = false;
      append_repr(budget, item, out);
    }
    append(close);
  };
  budget.work(1);
  switch (value.kind()) {
    case Kind::kUndefined:
      return append("Undefined");
    case Kind::kNone:
      return append("None");
    case Kind::kBool:
      return append(value.as_int() != 0 ? "True" : "False");
    case Kind::kInt:
      return append(std::to_string(value.as_int()));
    case Kind::kFloat:
      return append(float_repr(value.as_double()));
    case Kind::kString:
      budget.walk(value.text().size());
      return append(string_repr(value.text()));
    case Kind::kList:
      return append_items("[", "]");
    case Kind::kTuple:
      return append_items("(", value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict: {
      append("{");
      bool first = true;
      for (const auto& [key, item] : value.get<DictObject>().entries) {
        if (!first) append(", ");
        first = false;
        append_repr(budget, key, out);
        append(": ");
        append_repr(budget, item, out);
      }
      return append("}");
    }
    case Kind::kGenerator:
      return append("<generator object>");
    case Kind::kNamespace:
      return append("<Namespace>");
    case Kind::kLoop:
      return append("<LoopContext>");
    case Kind::kCallable:
      append("<function ");
      append(value.get<CallableObject>().name);
      return append(">");
  }
}

}  // namespace

std::string to_text(Budget& budget, const Value& value) {
  if (value.is_undefined()) return "";
  if (!value.is_string()) return to_repr(budget, value);
  budget.make(value.text().size());
  return value.text();
}

std::string to_repr(Budget& budget, const Value& value) {
  std::string out;
  append_repr(budget, value, out);
  return out;
}

std::string to_short_text(const Value& value) {
  if (value.is_string()) {
    std::string_view text = value.text();
    if (text.size() <= kMaxShownBytes) return string_repr(text);
    return string_repr(characters(text, 0, kMaxShownBytes / 4)) + "...";
  }
  if (value.is(Kind::kInt)) return std::to_string(value.as_int());
  if (value.is(Kind::kFloat)) return float_repr(value.as_double());
  return type_name(value);
}

}  // namespace zipage::jinja
