// The table of a pattern finds what the regular expression finds.
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/code_point_set.h"
#include "tokenizer/pre_patterns.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/scanner.h"
#include "tokenizer/utf8.h"

namespace zipage {
namespace {

using Matches = std::vector<std::pair<size_t, size_t>>;

template <typename Matcher>
Matches matches(const Matcher& matcher, const std::string& text) {
  Matches out;
  matcher.for_each_match(text, [&](size_t begin, size_t end) { out.emplace_back(begin, end); });
  return out;
}

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Which code points PCRE2 and utf8proc put into the same category: their Unicode versions differ.
std::vector<bool> agreed_code_points() {
  std::string all;
  std::vector<char32_t> code_points;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (is_surrogate(c)) continue;
    code_points.push_back(c);
    append_utf8(c, all);
  }
  std::vector<bool> agreed(kMaxCodePoint + 1);
  const GeneralCategories categories;
  for (const char* name : {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                           "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                           "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"}) {
    std::vector<bool> ours(kMaxCodePoint + 1);
    const auto set = categories.find(name);
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
    static const char* const kPieces[] = {
        "'s",     "'LL",    "'re",        "'\xC5\xBF", "'Ve",     " ",      "  ",       "\n",
        "\r\n",   "\t",     "\xC2\xA0",   "\xE3\x80\x80", "\xE1\xA0\x8E", "\xE2\x80\xA8", "\xC2\x85",
        "12345",  "1",      "\xC2\xB2",   "\xE2\x85\xA7", "abc",  "A",      "Hello",    "camelCase",
        "HTTPServer", "/",  "//\n",       "...",       " -",      "$+<",    "\xE4\xB8\xAD\xE6\x96\x87",
        "\xE3\x81\x82", "\xED\x95\x9C", "e\xCC\x81", "\xE1\xB8\x81", "\xF0\x9F\xA6\x99", "\xE2\x84\xAA",
        "\xEF\xBC\x81", "\xC7\x85", "\xCA\xB0", "\xE2\x82\xAC"};
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

std::set<std::string> all_patterns() {
  std::set<std::string> patterns = {
      kGpt2Pattern, "[^\\n]+|[\\n]+",        "\\p{N}",        "\\p{N}+",
      "\\ ",        "[\\p{P}!-/:-@\\[-`{-~]", "\\s",           "\xE4\xB8\xAD|\\x{3042}\\x41",
      "a{2}b{1,}c{0,3}", "(?i:'[sdmtk]|x[^s])", "\\d+(?!\\n)", "(?:ab?|abc)$"};
  for (const std::string& name : pre_rule_names()) {
    for (const std::string& pattern : find_pre_rule(name, "test").patterns) patterns.insert(pattern);
  }
  return patterns;
}

TEST(Scanner, FindsWhatTheRegexFinds) {
  const RandomText texts;
  EXPECT_TRUE(texts.is_agreed('a') && texts.is_agreed(0x4E2D) && texts.is_agreed(kMaxCodePoint));
  std::mt19937 random(5);
  for (const std::string& pattern : all_patterns()) {
    const auto scanner = Scanner::compile(pattern);
    ASSERT_NE(scanner, nullptr) << pattern;
    const Regex regex(pattern, "test");
    for (int i = 0; i < 2000; ++i) {
      const std::string text = texts.make(random);
      ASSERT_EQ(matches(*scanner, text), matches(regex, text))
          << pattern << "\n"
          << testing::PrintToString(text);
    }
  }
}

TEST(Scanner, KnowsEveryCharacter) {
  const RandomText texts;
  std::string all;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!is_surrogate(c) && texts.is_agreed(c)) append_utf8(c, all += "a ");
  }
  for (const std::string& pattern : all_patterns()) {
    const auto scanner = Scanner::compile(pattern);
    ASSERT_NE(scanner, nullptr) << pattern;
    EXPECT_TRUE(matches(*scanner, all) == matches(Regex(pattern, "test"), all)) << pattern;
  }
}

// Patterns of any shape over a few characters.
std::string random_pattern(std::mt19937& random, int depth) {
  std::string out;
  for (size_t items = 1 + random() % 3; items > 0; --items) {
    const size_t kind = random() % (depth > 0 ? 7 : 5);
    if (kind < 4) {
      static const char* const kItems[] = {"a", "b", "\\s", "[ab]", "[^a]", "[b ]", "\\S", "c"};
      out += kItems[random() % std::size(kItems)];
    } else if (kind == 4) {
      static const char* const kLooks[] = {"(?!\\S)", "(?!a)", "$"};
      out += kLooks[random() % std::size(kLooks)];
      continue;
    } else {
      out += "(?:" + random_pattern(random, depth - 1) + ")";
    }
    static const char* const kRepeats[] = {"", "", "", "?", "*", "+", "{1,3}", "{2}"};
    out += kRepeats[random() % std::size(kRepeats)];
  }
  return random() % 3 == 0 ? out + "|" + random_pattern(random, depth) : out;
}

TEST(Scanner, PrefersAsTheRegexDoes) {
  std::mt19937 random(17);
  int num_compiled = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string pattern = random_pattern(random, 2);
    const auto scanner = Scanner::compile(pattern);
    if (scanner == nullptr) continue;
    ++num_compiled;
    const Regex regex(pattern, "test");
    for (int k = 0; k < 20; ++k) {
      std::string text;
      for (size_t size = random() % 12; size > 0; --size) text += "aaabbc \n"[random() % 8];
      ASSERT_EQ(matches(*scanner, text), matches(regex, text))
          << pattern << "\n"
          << testing::PrintToString(text);
    }
  }
  EXPECT_GT(num_compiled, 1000);
}

TEST(Scanner, LeavesTheRestToTheRegex) {
  const std::string deep = std::string(1000, '(') + "a" + std::string(1000, ')');
  std::string wide = "x";
  for (int i = 0; i < 12; ++i) wide = "(?:" + wide + "){20}";
  for (const std::string& pattern :
       {deep, wide, std::string("a*"), std::string("a|"), std::string("$"), std::string("(a)"),
        std::string("a++"), std::string("a+?"), std::string("\\w"), std::string("."),
        std::string("^a"), std::string("(?<=a)b"), std::string("(?=a)b"), std::string("[a[b]]"),
        std::string("[a"), std::string("(a"), std::string("a)"), std::string("\\p{Greek}"),
        std::string("\\p{"), std::string("a{2"), std::string("a{3,2}"), std::string("a{1000}"),
        std::string("[b-a]"), std::string("(?i:\\p{Lu})"), std::string("(?i:\xC3\xA9)"),
        std::string("\\"), std::string("(?:a?)+"), std::string("\\x{110000}"), std::string("[]"),
        std::string("a\xFF"), std::string("*a")}) {
    EXPECT_EQ(Scanner::compile(pattern), nullptr) << pattern.substr(0, 40);
  }
}

TEST(Scanner, TakesTimeThatGrowsWithTheText) {
  const std::string text = std::string(1 << 20, ' ') + "x";
  const auto scanner = Scanner::compile("\\s+$");
  ASSERT_NE(scanner, nullptr);
  EXPECT_EQ(matches(*scanner, text), Matches{});
  EXPECT_EQ(matches(*scanner, text + " \n"), (Matches{{text.size(), text.size() + 2}}));
}

}  // namespace
}  // namespace zipage
