// Reads JSON that somebody else wrote: every complaint names the file and the field.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace zipage {

// Throws Error if `text` is not JSON.
boost::json::value parse_json(std::string_view text, const std::string& file);

// A value and where it stands. The value must outlive the view.
class JsonView {
 public:
  JsonView(const boost::json::value& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  // "tokenizer.json: model.vocab"
  std::string where() const { return path_.empty() ? file_ : file_ + ": " + path_; }
  const std::string& file() const { return file_; }
  const boost::json::value& value() const { return *value_; }

  JsonView at(std::string_view key) const;                   // throws if it is not there
  std::optional<JsonView> find(std::string_view key) const;  // none if absent or null
  JsonView item(size_t index) const;                         // of an array

  const boost::json::object& object() const;
  const boost::json::array& array() const;
  std::string_view string() const;
  bool boolean() const;
  int64_t integer() const;

  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string fallback) const;

 private:
  [[noreturn]] void wrong_kind(const char* wanted) const;
  const boost::json::value* value_;
  std::string file_;
  std::string path_;
};

}  // namespace zipage
