// JSON files of a model, read field by field. Every error names the file, the field and its value.
// The JSON library stays behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zipage {

struct JsonDocument;  // the file's name and its parsed value

// A value and its place in the document. Cheap to copy; keeps the document alive.
class JsonValue {
 public:
  // `file` is for messages. Rejects what is no JSON, and an object that names a key twice.
  static JsonValue parse(std::string_view text, const std::string& file);
  static JsonValue read(const std::string& path);

  bool is_null() const;
  bool is_bool() const;
  bool is_number() const;
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  // Of an object (an error otherwise). Absent and null read the same: nothing.
  std::optional<JsonValue> find(std::string_view key) const;
  JsonValue at(std::string_view key) const;  // an error when absent or null
  std::vector<std::pair<std::string, JsonValue>> members() const;
  // Of an array (an error otherwise).
  std::vector<JsonValue> elements() const;

  bool as_bool() const;
  int64_t as_int(int64_t min, int64_t max) const;  // an integer, or a float without fraction
  double as_double(double min, double max) const;
  std::string as_string() const;

  // Throws kDataLoss: "FILE: field 'a.b' is VALUE; expected EXPECTED".
  [[noreturn]] void fail_expected(std::string_view expected) const;
  std::string text() const;  // the value as JSON, shortened
  const std::string& file() const;
  const std::string& field() const { return path_; }  // "rope_scaling.factor"; "" is the root

 private:
  JsonValue(std::shared_ptr<const JsonDocument> document, const void* node, std::string path)
      : document_(std::move(document)), node_(node), path_(std::move(path)) {}

  std::shared_ptr<const JsonDocument> document_;
  const void* node_;
  std::string path_;
};

}  // namespace zipage
