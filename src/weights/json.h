// JsonValue: JSON files of a model, read field by field. Every error names the file, the field and
// its value. The JSON library stays behind this header.
//
//   JsonValue config = JsonValue::read(folder + "/config.json");
//   int64_t layers = config.at("num_hidden_layers").as_int(1, 1000);
//
// Threads: immutable; any thread may read it.
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

// The file's name and its parsed value.
struct JsonDocument;

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
  // An error when absent or null.
  JsonValue at(std::string_view key) const;
  std::vector<std::pair<std::string, JsonValue>> members() const;
  // Of an array (an error otherwise).
  std::vector<JsonValue> elements() const;

  bool as_bool() const;
  // An integer, or a float without fraction.
  int64_t as_int(int64_t min, int64_t max) const;
  double as_double(double min, double max) const;
  std::string as_string() const;

  // Throws kDataLoss: "FILE: field 'a.b' is VALUE; expected EXPECTED".
  [[noreturn]] void fail_expected(std::string_view expected) const;
  // The value as JSON, shortened.
  std::string text() const;
  const std::string& file() const;
  // "rope_scaling.factor"; "" is the root.
  const std::string& field() const { return path_; }

 private:
  JsonValue(std::shared_ptr<const JsonDocument> document, const void* node, std::string path)
      : document_(std::move(document)), node_(node), path_(std::move(path)) {}

  std::shared_ptr<const JsonDocument> document_;
  const void* node_;
  std::string path_;
};

}  // namespace zipage
