#include "tokenizer/byte_level.h"

#include "tokenizer/utf8.h"

namespace zipage {

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  // Bytes that are printable in Latin-1 stand for themselves, the others are numbered from U+0100
  // on.
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    byte_of_[static_cast<size_t>(printable ? byte : next++)] = static_cast<int16_t>(byte);
  }
}

std::optional<std::string> ByteAlphabet::to_bytes(std::string_view token) const {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t i = 0; i < token.size();) {
    const Utf8Step step = read_utf8(token, i);
    if (!step.valid || step.code_point >= byte_of_.size() || byte_of_[step.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(byte_of_[step.code_point]));
    i += step.length;
  }
  return bytes;
}

}  // namespace zipage
