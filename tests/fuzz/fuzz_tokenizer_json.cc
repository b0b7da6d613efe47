// A tokenizer.json of any content loads or throws Error; what loads encodes and decodes.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer =
        zipage::make_tokenizer(zipage::read_tokenizer_json(input, "fuzz"), "fuzz");
    const auto ids = tokenizer->encode(input.substr(0, 256));
    tokenizer->decode(ids);
  } catch (const zipage::Error&) {
  }
  return 0;
}
