// Where each token's text begins in a text whose tokens come one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zipage::server {

// Offsets count characters (Unicode code points), as clients index text. A token that begins inside
// a character has that character's offset.
class TextOffsets {
 public:
  // The offset of a token with these bytes, which follow all bytes before.
  int64_t add(std::string_view bytes);

 private:
  int64_t num_characters_ = 0;  // whole ones
  std::string open_;            // bytes of one that is not whole yet
};

// Bytes of the UTF-8 character at `at`; 0 when it is broken, or its end is missing.
size_t character_length(std::string_view bytes, size_t at);
// A token's bytes as text; broken UTF-8 becomes U+FFFD.
std::string lossy_text(std::string_view bytes);

}  // namespace zipage::server
