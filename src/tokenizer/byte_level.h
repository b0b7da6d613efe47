// The byte alphabet of GPT-2: every byte has a printable character that stands for it in vocab
// files.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zipage {

class ByteAlphabet {
 public:
  ByteAlphabet();
  // The bytes that a token of the file stands for; none if a character is outside the alphabet.
  std::optional<std::string> to_bytes(std::string_view token) const;

 private:
  std::array<int16_t, 0x144> byte_of_{};  // by code point; -1: not in the alphabet
};

}  // namespace zipage
