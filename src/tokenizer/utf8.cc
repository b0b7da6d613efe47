#include "tokenizer/utf8.h"

#include <cstring>

namespace zipage {

Utf8Step read_utf8(std::string_view text, size_t offset) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte_at(offset);
  if (lead < 0x80) return {lead, 1, true, false};
  int num_more = 0;
  uint8_t low = 0x80;  // bounds of the second byte, which rule out overlong forms and surrogates
  uint8_t high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    num_more = 1;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    num_more = 2;
    value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    num_more = 3;
    value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0xFFFD, 1, false, false};
  }
  for (int i = 1; i <= num_more; ++i) {
    const auto length = static_cast<uint8_t>(i);
    if (offset + i >= text.size()) return {0xFFFD, length, false, true};
    const uint8_t byte = byte_at(offset + i);
    if (byte < low || byte > high) return {0xFFFD, length, false, false};
    value = (value << 6) | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {value, static_cast<uint8_t>(num_more + 1), true, false};
}

namespace {

// The length of the ASCII run at `offset`.
size_t ascii_run(std::string_view text, size_t offset) {
  size_t i = offset;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i - offset;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    i += ascii_run(text, i);
    if (i == text.size()) break;
    const Utf8Step step = read_utf8(text, i);
    if (!step.valid) return false;
    i += step.length;
  }
  return true;
}

void append_lossy_utf8(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const size_t run = ascii_run(text, i);
    out.append(text.substr(i, run));
    i += run;
    if (i == text.size()) break;
    const Utf8Step step = read_utf8(text, i);
    out.append(step.valid ? text.substr(i, step.length) : kReplacementCharacter);
    i += step.length;
  }
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace zipage
