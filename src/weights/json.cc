#include "weights/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/mmap.h"

namespace zipage {

namespace json = boost::json;

struct JsonDocument {
  std::string file;
  json::value root;
};

namespace {

// Finds the first key that an object names twice; the library keeps the last one silently.
struct DuplicateKeyHandler {
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  using error = json::error_code;
  using text = json::string_view;

  std::vector<std::unordered_set<std::string>> open;
  std::string key;
  std::optional<std::string> duplicate;

  bool on_document_begin(error&) { return true; }
  bool on_document_end(error&) { return true; }
  bool on_object_begin(error&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(size_t, error&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(error&) { return true; }
  bool on_array_end(size_t, error&) { return true; }
  bool on_key_part(text part, size_t, error&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(text part, size_t, error&) {
    key.append(part.data(), part.size());
    if (!open.back().insert(key).second && !duplicate) duplicate = key;
    key.clear();
    return true;
  }
  bool on_string_part(text, size_t, error&) { return true; }
  bool on_string(text, size_t, error&) { return true; }
  bool on_number_part(text, error&) { return true; }
  bool on_int64(int64_t, text, error&) { return true; }
  bool on_uint64(uint64_t, text, error&) { return true; }
  bool on_double(double, text, error&) { return true; }
  bool on_bool(bool, error&) { return true; }
  bool on_null(error&) { return true; }
  bool on_comment_part(text, error&) { return true; }
  bool on_comment(text, error&) { return true; }
};

const json::value& as_value(const void* node) { return *static_cast<const json::value*>(node); }

std::string child_path(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

}  // namespace

JsonValue JsonValue::parse(std::string_view text, const std::string& file) {
  json::basic_parser<DuplicateKeyHandler> checker{json::parse_options{}};
  json::error_code error;
  const size_t used = checker.write_some(false, text.data(), text.size(), error);
  size_t rest = used;
  while (!error && rest < text.size() &&
         std::string_view(" \t\r\n").find(text[rest]) != std::string_view::npos) {
    ++rest;
  }
  if (error || rest < text.size()) {
    fail(StatusCode::kDataLoss, "{}: not valid JSON at byte {} of {}: {}", file, rest, text.size(),
         error ? error.message() : "text after the end of the document");
  }
  if (const auto& duplicate = checker.handler().duplicate) {
    fail(StatusCode::kDataLoss, "{}: field '{}' appears twice in one object", file, *duplicate);
  }
  auto document = std::make_shared<JsonDocument>();
  document->file = file;
  document->root = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) fail(StatusCode::kDataLoss, "{}: not valid JSON: {}", file, error.message());
  const void* root = &document->root;
  return JsonValue(std::move(document), root, "");
}

JsonValue JsonValue::read(const std::string& path) { return parse(read_text_file(path), path); }

bool JsonValue::is_null() const { return as_value(node_).is_null(); }
bool JsonValue::is_bool() const { return as_value(node_).is_bool(); }
bool JsonValue::is_number() const { return as_value(node_).is_number(); }
bool JsonValue::is_string() const { return as_value(node_).is_string(); }
bool JsonValue::is_array() const { return as_value(node_).is_array(); }
bool JsonValue::is_object() const { return as_value(node_).is_object(); }

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  const auto* object = as_value(node_).if_object();
  if (object == nullptr) fail_expected("an object");
  const json::value* child = object->if_contains(json::string_view(key.data(), key.size()));
  if (child == nullptr || child->is_null()) return std::nullopt;
  return JsonValue(document_, child, child_path(path_, key));
}

JsonValue JsonValue::at(std::string_view key) const {
  if (auto child = find(key)) return *std::move(child);
  fail(StatusCode::kDataLoss, "{}: field '{}' is missing", file(), child_path(path_, key));
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  const auto* object = as_value(node_).if_object();
  if (object == nullptr) fail_expected("an object");
  std::vector<std::pair<std::string, JsonValue>> members;
  members.reserve(object->size());
  for (const auto& member : *object) {
    const std::string key(member.key().data(), member.key().size());
    members.emplace_back(key, JsonValue(document_, &member.value(), child_path(path_, key)));
  }
  return members;
}

std::vector<JsonValue> JsonValue::elements() const {
  const auto* array = as_value(node_).if_array();
  if (array == nullptr) fail_expected("an array");
  std::vector<JsonValue> elements;
  elements.reserve(array->size());
  for (const auto& element : *array) {
    elements.push_back(
        JsonValue(document_, &element, fmt::format("{}[{}]", path_, elements.size())));
  }
  return elements;
}

bool JsonValue::as_bool() const {
  if (const bool* value = as_value(node_).if_bool()) return *value;
  fail_expected("true or false");
}

int64_t JsonValue::as_int(int64_t min, int64_t max) const {
  const json::value& value = as_value(node_);
  const std::string expected = fmt::format("an integer from {} to {}", min, max);
  int64_t integer = 0;
  if (const int64_t* exact = value.if_int64()) {
    integer = *exact;
  } else if (const double* real = value.if_double()) {
    // Above 2^53 a float does not say which integer is meant.
    if (!(std::abs(*real) <= 0x1p53) || std::trunc(*real) != *real) fail_expected(expected);
    integer = static_cast<int64_t>(*real);
  } else {
    fail_expected(expected);  // also an unsigned integer of 2^63 or more
  }
  if (integer < min || integer > max) fail_expected(expected);
  return integer;
}

double JsonValue::as_double(double min, double max) const {
  const json::value& value = as_value(node_);
  double real = 0;
  if (const double* exact = value.if_double()) {
    real = *exact;
  } else if (const int64_t* integer = value.if_int64()) {
    real = static_cast<double>(*integer);
  } else if (const uint64_t* large = value.if_uint64()) {
    real = static_cast<double>(*large);
  } else {
    fail_expected(fmt::format("a number from {} to {}", min, max));
  }
  if (!(real >= min && real <= max)) fail_expected(fmt::format("a number from {} to {}", min, max));
  return real;
}

std::string JsonValue::as_string() const {
  if (const json::string* value = as_value(node_).if_string()) {
    return std::string(value->data(), value->size());
  }
  fail_expected("a string");
}

void JsonValue::fail_expected(std::string_view expected) const {
  if (path_.empty()) {
    fail(StatusCode::kDataLoss, "{}: the document is {}; expected {}", file(), text(), expected);
  }
  fail(StatusCode::kDataLoss, "{}: field '{}' is {}; expected {}", file(), path_, text(), expected);
}

std::string JsonValue::text() const {
  constexpr size_t kMaxShown = 60;
  std::string text = json::serialize(as_value(node_));
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

const std::string& JsonValue::file() const { return document_->file; }

}  // namespace zipage
