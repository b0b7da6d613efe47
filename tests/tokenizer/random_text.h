// Texts of all kinds of characters.
#pragma once

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tokenizer/code_point_set.h"
#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace zipage::test {

inline bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Which code points PCRE2 and utf8proc put into the same category: their Unicode versions differ.
inline std::vector<bool> agreed_code_points() {
  std::string all;
  std::vector<char32_t> code_points;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (is_surrogate(c)) continue;
    code_points.push_back(c);
    append_utf8(c, all);
  }
  std::vector<bool> agreed(kMaxCodePoint + 1);
  for (const char* name :
       {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
        "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"}) {
    std::vector<bool> ours(kMaxCodePoint + 1);
    const auto set = find_general_category(name);
    if (!set) throw std::runtime_error(name);
    for (const auto& range : set->ranges()) {
      for (char32_t c = range.first; c <= range.last; ++c) ours[c] = true;
    }
    const Regex regex("\\p{" + std::string(name) + "}+", "test");
    regex.for_each_match(all, [&](size_t begin, size_t end) {
      while (begin < end) {
        const Utf8Step step = read_utf8(all, begin);
        if (ours[step.code_point]) agreed[step.code_point] = true;
        begin += step.length;
      }
    });
  }
  return agreed;
}

class RandomText {
 public:
  RandomText() : agreed_(agreed_code_points()) {}

  std::string make(std::mt19937& random) const {
    std::string text;
    const size_t flavor = random() % 5;
    for (size_t count = random() % 40; count > 0; --count) {
      const size_t kind = flavor < 4 && random() % 4 != 0 ? flavor : random() % 5;
      append(kind, random, text);
    }
    return text;
  }

  bool is_agreed(char32_t c) const { return agreed_[c]; }

 private:
  void append(size_t kind, std::mt19937& random, std::string& text) const {
    static const char* const kPieces[] = {"'s",
                                          "'LL",
                                          "'re",
                                          "'\xC5\xBF",
                                          "'Ve",
                                          " ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "\xC2\xA0",
                                          "\xE3\x80\x80",
                                          "\xE1\xA0\x8E",
                                          "\xE2\x80\xA8",
                                          "\xC2\x85",
                                          "12345",
                                          "1",
                                          "\xC2\xB2",
                                          "\xE2\x85\xA7",
                                          "abc",
                                          "A",
                                          "Hello",
                                          "camelCase",
                                          "HTTPServer",
                                          "/",
                                          "//\n",
                                          "...",
                                          " -",
                                          "$+<",
                                          "\xE4\xB8\xAD\xE6\x96\x87",
                                          "\xE3\x81\x82",
                                          "\xED\x95\x9C",
                                          "e\xCC\x81",
                                          "\xE1\xB8\x81",
                                          "\xF0\x9F\xA6\x99",
                                          "\xE2\x84\xAA",
                                          "\xEF\xBC\x81",
                                          "\xC7\x85",
                                          "\xCA\xB0",
                                          "\xE2\x82\xAC"};
    char32_t c = 0;
    switch (kind) {
      case 0:
        c = 0x20 + random() % 0x5F;
        break;
      case 1:
        text += kPieces[random() % std::size(kPieces)];
        return;
      case 2:
        c = random() % 0x600;
        break;
      case 3:
        c = random() % 0x10000;
        break;
      default:
        c = random() % 4 == 0 ? random() % (kMaxCodePoint + 1) : random() % 0x20000;
    }
    if (!is_surrogate(c) && agreed_[c]) append_utf8(c, text);
  }

  std::vector<bool> agreed_;
};

}  // namespace zipage::test
