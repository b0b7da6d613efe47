// Any bytes are a list of tensors or one Error.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    for (const zipage::SafetensorsEntry& entry : zipage::parse_safetensors(file, "x")) {
      const zipage::HostTensor& tensor = entry.tensor;
      ZIPAGE_CHECK(tensor.data >= file.data() && tensor.data <= file.data() + file.size());
      if (!entry.unsupported_type.empty()) continue;
      ZIPAGE_CHECK_LE(tensor.bytes(), file.data() + file.size() - tensor.data);
    }
  } catch (const zipage::Error&) {
  }
  return 0;
}
