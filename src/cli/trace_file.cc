#include "cli/trace_file.h"

#include "base/error.h"
#include "cli/json_lines.h"

namespace zipage::cli {

std::vector<TraceRow> read_trace_file(const std::string& path) {
  std::vector<TraceRow> rows;
  constexpr int64_t kMost = int64_t{1} << 24;
  read_json_lines(path, [&](const JsonLine& line) {
    TraceRow row{line.integer("prompt_tokens", 1, kMost), line.integer("output_tokens", 1, kMost),
                 line.integer_or("age", 0, kMost, 0)};
    if (row.age >= row.output_tokens) line.fail_field("age", "not less than output_tokens");
    rows.push_back(row);
  });
  if (rows.empty()) fail_invalid("{}: no requests in the trace", path);
  return rows;
}

}  // namespace zipage::cli
