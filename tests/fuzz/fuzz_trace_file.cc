// Any bytes are a trace of requests, or one Error; both readers of traces agree on which.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "cli/trace_file.h"
#include "fuzz/memory_file.h"
#include "schedule/simulate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zipage::fuzz::MemoryFile file(data, size);
  size_t for_engine = 0;
  size_t for_simulation = 0;
  try {
    for (const zipage::cli::TraceRow& row : zipage::cli::read_trace_file(file.path())) {
      ZIPAGE_CHECK_GE(row.age, 0);
      ZIPAGE_CHECK_LT(row.age, row.output_tokens);
      ++for_engine;
    }
  } catch (const zipage::Error&) {
  }
  try {
    for_simulation = zipage::read_trace(file.path()).size();
  } catch (const zipage::Error&) {
  }
  ZIPAGE_CHECK_EQ(for_engine, for_simulation);
  return 0;
}
