// Requests of given lengths, one JSON object a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zipage::cli {

struct TraceRow {
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t age = 0;  // output tokens it has when the clock starts; less than output_tokens
};

// Every line needs "prompt_tokens" and "output_tokens"; "age" is optional. Throws Error naming
// file, line and field.
std::vector<TraceRow> read_trace_file(const std::string& path);

}  // namespace zipage::cli
