// A tokenizer_config.json of any content beside a good tokenizer.json makes a tokenizer or throws
// Error; its template renders or throws Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "tokenizer/hf_companions.h"
#include "tokenizer/hf_tokenizer.h"

namespace {

constexpr std::string_view kTokenizer = R"({
  "added_tokens": [{"id": 3, "content": "<s>", "special": true},
                   {"id": 4, "content": "</s>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    zipage::TokenizerParts parts = zipage::read_tokenizer_json(kTokenizer, "fuzz");
    // The same bytes as each of the files; of the old ones only without added_tokens_decoder.
    const zipage::NamedText file{std::string(input), "fuzz"};
    zipage::read_companion_files({.tokenizer_config = file}, parts);
    zipage::TokenizerParts old = zipage::read_tokenizer_json(kTokenizer, "fuzz");
    try {
      zipage::read_companion_files({.special_tokens_map = file, .added_tokens = file}, old);
    } catch (const zipage::Error&) {
    }
    const auto tokenizer = zipage::make_tokenizer(std::move(parts), "fuzz");
    tokenizer->decode(tokenizer->encode("<s>ab</s>"));
  } catch (const zipage::Error&) {
  }
  return 0;
}
