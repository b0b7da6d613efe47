#include "server/text_offsets.h"

#include <algorithm>

namespace zipage::server {
namespace {

// Bytes that the lead byte announces; 0: no lead byte.
size_t announced_length(unsigned char lead) {
  return lead < 0x80                   ? 1
         : lead >= 0xC2 && lead < 0xE0 ? 2
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xF0 && lead < 0xF5 ? 4
                                       : 0;
}

}  // namespace

size_t character_length(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  const unsigned lead = byte(at), second = byte(at + 1);
  if (lead < 0x80) return 1;
  // Shortest forms only, no surrogates, nothing above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  const size_t length = announced_length(static_cast<unsigned char>(lead));
  if (length == 0 || second < low || second > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

std::string lossy_text(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = character_length(bytes, i);
    if (length > 0) {
      text.append(bytes, i, length);
    } else {
      text += "\xEF\xBF\xBD";
    }
    i += std::max<size_t>(1, length);
  }
  return text;
}

int64_t TextOffsets::add(std::string_view bytes) {
  const int64_t offset = num_characters_;
  open_ += bytes;
  size_t at = 0;
  while (at < open_.size()) {
    const size_t length = character_length(open_, at);
    // More of it may come.
    if (length == 0 && at + announced_length(static_cast<unsigned char>(open_[at])) > open_.size())
      break;
    at += std::max<size_t>(1, length);
    ++num_characters_;
  }
  open_.erase(0, at);
  return offset;
}

}  // namespace zipage::server
