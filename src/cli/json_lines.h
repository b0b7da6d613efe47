// JSON Lines files: one object a line, errors with file, line and field.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace zipage::cli {

class JsonLine {
 public:
  JsonLine(const std::string& path, int64_t number, const boost::json::object& object)
      : path_(path), number_(number), object_(object) {}
  int64_t number() const { return number_; }  // from 1
  bool has(const char* field) const { return object_.contains(field); }
  const boost::json::value& value(const char* field) const;
  const boost::json::object& object(const char* field) const;
  std::string text(const char* field) const;
  std::string text_or(const char* field, std::string fallback) const;
  int64_t integer(const char* field, int64_t low, int64_t high) const;
  int64_t integer_or(const char* field, int64_t low, int64_t high, int64_t fallback) const;
  [[noreturn]] void fail_field(const char* field, const std::string& what) const;

 private:
  const std::string& path_;
  int64_t number_;
  const boost::json::object& object_;
};

// Empty lines are skipped.
void read_json_lines(const std::string& path, const std::function<void(const JsonLine&)>& each);

}  // namespace zipage::cli
