// UTF-8 by hand: the tokenizer's hot paths look at bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zipage {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One step through text that may be broken.
struct Utf8Step {
  char32_t code_point = 0;  // U+FFFD if !valid
  uint8_t length = 0;       // bytes consumed; a broken sequence's is its maximal valid prefix
  bool valid = false;
  bool truncated = false;  // broken only because the text ends: more bytes could complete it
};

// Reads the character at `offset` < text.size().
Utf8Step read_utf8(std::string_view text, size_t offset);

bool is_valid_utf8(std::string_view text);

// Appends `text` with every maximal broken sequence replaced by one U+FFFD (the Unicode Standard's
// recommended practice, as WHATWG and Rust's from_utf8_lossy do).
void append_lossy_utf8(std::string_view text, std::string& out);

void append_utf8(char32_t code_point, std::string& out);

// Bytes of the character that starts with `lead`, in valid UTF-8.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace zipage
