// Any bytes are a KV trace, its records whole, or one Error.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "compress/kv_trace.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zipage::fuzz::MemoryFile file(data, size);
  try {
    zipage::KvTraceReader reader(file.path());
    for (zipage::KvTraceRecord record; reader.next(record);) {
      const size_t entries =
          static_cast<size_t>(record.num_heads) * static_cast<size_t>(record.keep);
      ZIPAGE_CHECK_EQ(record.positions.size(), entries);
      ZIPAGE_CHECK_EQ(record.scores.size(), entries);
      for (size_t i = 0; i < entries; ++i) {
        const bool first = i % static_cast<size_t>(record.keep) == 0;
        ZIPAGE_CHECK_GT(record.positions[i], first ? -1 : record.positions[i - 1]);
      }
    }
  } catch (const zipage::Error&) {
  }
  return 0;
}
