#include "cli/json_lines.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace zipage::cli {

void JsonLine::fail_field(const char* field, const std::string& what) const {
  fail_invalid("{}:{}: field '{}': {}", path_, number_, field, what);
}

const boost::json::value& JsonLine::value(const char* field) const {
  const auto* value = object_.if_contains(field);
  if (value == nullptr) fail_field(field, "missing");
  return *value;
}

const boost::json::object& JsonLine::object(const char* field) const {
  const auto& found = value(field);
  if (!found.is_object())
    fail_field(field, "expected an object, found " + boost::json::serialize(found));
  return found.as_object();
}

std::string JsonLine::text(const char* field) const {
  const auto& found = value(field);
  if (!found.is_string())
    fail_field(field, "expected a string, found " + boost::json::serialize(found));
  return std::string(found.as_string());
}

std::string JsonLine::text_or(const char* field, std::string fallback) const {
  return object_.contains(field) ? text(field) : fallback;
}

int64_t JsonLine::integer(const char* field, int64_t low, int64_t high) const {
  const auto& found = value(field);
  if (!found.is_int64() || found.as_int64() < low || found.as_int64() > high) {
    fail_field(field, fmt::format("expected an integer in [{}, {}], found {}", low, high,
                                  boost::json::serialize(found)));
  }
  return found.as_int64();
}

int64_t JsonLine::integer_or(const char* field, int64_t low, int64_t high, int64_t fallback) const {
  return object_.contains(field) ? integer(field, low, high) : fallback;
}

void read_json_lines(const std::string& path, const std::function<void(const JsonLine&)>& each) {
  if (std::filesystem::is_directory(path))
    fail_invalid("{}: a folder; expected a file of JSON lines", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(StatusCode::kNotFound, "{}: cannot read the file", path);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(line, error);
    if (error) fail_invalid("{}:{}: not JSON: {}", path, number, error.message());
    if (!value.is_object()) fail_invalid("{}:{}: expected a JSON object", path, number);
    each(JsonLine(path, number, value.as_object()));
  }
}

}  // namespace zipage::cli
