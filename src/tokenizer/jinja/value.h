// The values of a template: Python's, as far as templates can tell.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/budget.h"

namespace zipage::jinja {

class Interpreter;
class Value;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kGenerator,  // what filters such as map give: always true, has no length, can be walked once
  kNamespace,
  kLoop,
  kCallable,
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What a value points to. `depth` counts nested containers, so that walking and destroying values
// never runs out of stack.
struct Object {
  virtual ~Object() = default;
  int depth = 0;
};

inline constexpr int kMaxValueDepth = 200;

// Cheap to copy; strings and containers are shared and never change, except a namespace, a loop and
// a generator's position. Those belong to the interpreter and a value only points at them, which is
// why values form no cycles. Thread-safe for reading.
class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value floating(double value);
  static Value string(std::string text);
  static Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  static Value generator(std::vector<Value> items);
  // `why` says how it came about, for messages.
  static Value undefined(std::string why);
  using Function = std::function<Value(Interpreter&, CallArgs&)>;
  // `self` is what the function is bound to, if anything.
  static Value callable(std::string name, Function function);
  static Value callable(std::string name, Function function, const Value& self);
  // Not owned.
  static Value pointer(Kind kind, Object* object);
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  // Each needs the kind that it names.
  int64_t as_int() const { return kind_ == Kind::kBool ? int64_t{boolean_} : integer_; }
  double as_double() const {
    return kind_ == Kind::kFloat ? floating_ : static_cast<double>(as_int());
  }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // list, tuple, generator
  template <typename T>
  T& get() const {
    return static_cast<T&>(*object_);
  }
  int depth() const { return object_ ? object_->depth : 0; }
  const Object* identity() const { return object_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  static Value sequence(Kind kind, std::vector<Value> items);

  Kind kind_ = Kind::kUndefined;
  union {
    bool boolean_;
    int64_t integer_ = 0;
    double floating_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
  // As many characters as bytes: places are found without counting.
  bool is_ascii = false;
};

struct ListObject : Object {
  std::vector<Value> items;
  bool consumed = false;  // generators
};

// Keeps the order of insertion; keys are strings, numbers, booleans, none or small tuples of such.
// A lookup or an insertion takes constant time: the table is hashed with a seed of its own, which
// nobody outside can aim at.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(std::string_view key) const;
  // Null also for a key that cannot be one.
  const Value* find(const Value& key) const;
  // Throws if the key cannot be one.
  void set(const Value& key, Value value);

 private:
  template <typename Matches>
  const Value* find_hashed(uint64_t hash, const Matches& matches) const;
  uint64_t seed() const;
  void grow();

  // Entry + 1 by hash, 0: free; open addressing. Empty while there are few entries.
  std::vector<uint32_t> slots_;
  std::vector<uint64_t> hashes_;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct CallableObject : Object {
  std::string name;
  Value::Function function;
  Value self;  // kept alive for the function
};

// Builds a dict.
class DictBuilder {
 public:
  DictBuilder() : dict_(std::make_shared<DictObject>()) {}
  void set(std::string_view key, Value value) {
    dict_->set(Value::string(std::string(key)), std::move(value));
  }
  void set(const Value& key, Value value) { dict_->set(key, std::move(value)); }
  Value finish() { return Value::object(Kind::kDict, std::move(dict_)); }

 private:
  std::shared_ptr<DictObject> dict_;
};

// "str", "int", "NoneType" ...: Python's names, for messages.
const char* type_name(const Value& value);

bool is_true(const Value& value);
// Shared values are walked as often as they are met, as trees: hence the budget.
bool equals(Budget& budget, const Value& a, const Value& b);
// Whether a < b; throws as Python does if they do not compare.
bool less_than(Budget& budget, const Value& a, const Value& b);
// What {{ value }} prints, and Python's repr() of it. Throw if the value is nested too deeply.
std::string to_text(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);
// A few words about a value, for messages.
std::string to_short_text(const Value& value);
std::string float_repr(double value);

}  // namespace zipage::jinja
