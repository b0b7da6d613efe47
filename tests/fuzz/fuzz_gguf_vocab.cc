// GGUF metadata of any content makes a tokenizer or throws Error.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/gguf_vocab.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = zipage::make_tokenizer(
        zipage::make_tokenizer_parts(zipage::parse_gguf_vocab(input, "fuzz"), "fuzz"), "fuzz");
    tokenizer->decode(tokenizer->encode("Hello, world 123 \xE2\x96\x81\n"));
  } catch (const zipage::Error&) {
  }
  return 0;
}
