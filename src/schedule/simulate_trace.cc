#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "schedule/simulate.h"

namespace zipage {
namespace {

int32_t count_of(const boost::json::object& row,
                 const char* field,
                 int64_t least,
                 const std::string& place) {
  const boost::json::value* value = row.if_contains(field);
  if (value == nullptr) fail_invalid("{}: no field \"{}\"", place, field);
  if (!value->is_int64()) fail_invalid("{}: \"{}\" is not an integer", place, field);
  constexpr int64_t kMost = 1 << 24;
  const int64_t count = value->get_int64();
  if (count < least || count > kMost) {
    fail_invalid("{}: \"{}\" is {}: it must be in [{}, {}]", place, field, count, least, kMost);
  }
  return static_cast<int32_t>(count);
}

}  // namespace

std::vector<TraceRequest> read_trace(const std::string& path) {
  if (std::filesystem::is_directory(path))
    fail_invalid("{}: a folder; expected a file of JSON lines", path);
  std::ifstream file(path);
  if (!file) fail(StatusCode::kNotFound, "{}: cannot be opened", path);
  std::vector<TraceRequest> trace;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(line, error);
    if (error || !value.is_object()) fail_invalid("{}: not a JSON object", place);
    const boost::json::object& row = value.get_object();
    TraceRequest request;
    request.prompt_tokens = count_of(row, "prompt_tokens", 1, place);
    request.output_tokens = count_of(row, "output_tokens", 1, place);
    if (row.contains("age")) request.age = count_of(row, "age", 0, place);
    if (request.age >= request.output_tokens) {
      fail_invalid("{}: \"age\" {} leaves nothing of \"output_tokens\" {}", place, request.age,
                   request.output_tokens);
    }
    trace.push_back(request);
  }
  if (trace.empty()) fail_invalid("{}: no requests in the trace", path);
  return trace;
}

}  // namespace zipage
