// Any bytes are a trace of requests, or one Error.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/memory_file.h"
#include "schedule/simulate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zipage::fuzz::MemoryFile file(data, size);
  try {
    for (const zipage::TraceRequest& row : zipage::read_trace(file.path())) {
      ZIPAGE_CHECK_GE(row.age, 0);
      ZIPAGE_CHECK_LT(row.age, row.output_tokens);
    }
  } catch (const zipage::Error&) {
  }
  return 0;
}
