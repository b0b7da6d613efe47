#include "engine/device_memory.h"

#include "base/error.h"

namespace zipage {
namespace {

std::string size_text(size_t bytes) {
  const auto b = static_cast<double>(bytes);
  return b >= 0x1p29 ? fmt::format("{:.2f} GiB", b / 0x1p30)
                     : fmt::format("{:.1f} MiB", b / 0x1p20);
}

}  // namespace

void check_device_memory(std::span<const MemoryPart> parts,
                         size_t available,
                         const std::string& limit) {
  size_t needed = 0;
  std::string list;
  for (const MemoryPart& part : parts) {
    needed += part.bytes;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", part.name, size_text(part.bytes));
  }
  if (needed <= available) return;
  fail(StatusCode::kResourceExhausted, "GPU memory: {} are needed ({}), {} are there: {}",
       size_text(needed), list, size_text(available), limit);
}

}  // namespace zipage
