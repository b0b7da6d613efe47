// The table of a pattern finds what the regular expression finds.
#include "tokenizer/scanner.h"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/code_point_set.h"
#include "tokenizer/pre_patterns.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/random_text.h"
#include "tokenizer/regex.h"
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

std::set<std::string> all_patterns() {
  std::set<std::string> patterns = {kGpt2Pattern,
                                    "[^\\n]+|[\\n]+",
                                    "\\p{N}",
                                    "\\p{N}+",
                                    "\\ ",
                                    "[\\p{P}!-/:-@\\[-`{-~]",
                                    "\\s",
                                    "\xE4\xB8\xAD|\\x{3042}\\x41",
                                    "a{2}b{1,}c{0,3}",
                                    "(?i:'[sdmtk]|x[^s])",
                                    "[\\x{FF}-\\x{1FF}\\x{2FF}\\x{400}-\\x{10FEFE}]",
                                    "\\d+(?!\\n)",
                                    "(?:ab?|abc)$"};
  for (const std::string& name : pre_rule_names()) {
    for (const std::string& pattern : find_pre_rule(name, "test").patterns)
      patterns.insert(pattern);
  }
  return patterns;
}

TEST(Scanner, FindsWhatTheRegexFinds) {
  const test::RandomText texts;
  EXPECT_TRUE(texts.is_agreed('a') && texts.is_agreed(0x4E2D) && texts.is_agreed(kMaxCodePoint));
  std::mt19937 random(5);
  for (const std::string& pattern : all_patterns()) {
    const auto scanner = Scanner::compile(pattern);
    ASSERT_NE(scanner, nullptr) << pattern;
    const Regex regex(pattern, "test");
    for (int i = 0; i < 2000; ++i) {
      const std::string text = texts.make(random);
      ASSERT_EQ(matches(*scanner, text), matches(regex, text)) << pattern << "\n"
                                                               << testing::PrintToString(text);
    }
  }
}

TEST(Scanner, KnowsEveryCharacter) {
  const test::RandomText texts;
  std::string all;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!test::is_surrogate(c) && texts.is_agreed(c)) append_utf8(c, all += "a ");
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

TEST(Scanner, KnowsWhichBytesBeginAMatch) {
  const auto scanner = Scanner::compile("[a-c\\x{E9}-\\x{2FFF}]+\\p{L}|\\x{10FFFF}");
  ASSERT_NE(scanner, nullptr);
  for (int byte = 0; byte < 256; ++byte) {
    const bool begins =
        (byte >= 'a' && byte <= 'c') || (byte >= 0xC3 && byte <= 0xE2) || byte == 0xF4;
    EXPECT_EQ(scanner->may_begin(static_cast<char>(byte)), begins) << byte;
  }
}

TEST(CodePointSet, JoinsRangesThatTouch) {
  CodePointSet set = {{10, 19}, {30, 39}, {50, 59}};
  set.add({{0, 3}, {20, 29}, {45, 55}, {70, 79}});
  EXPECT_EQ(set, (CodePointSet{{0, 3}, {10, 39}, {45, 59}, {70, 79}}));
  const CodePointSet copy = set;
  set.add(set);
  EXPECT_EQ(set, copy);
  set.add(set.complement());
  EXPECT_EQ(set, (CodePointSet{{0, kMaxCodePoint}}));
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
      ASSERT_EQ(matches(*scanner, text), matches(regex, text)) << pattern << "\n"
                                                               << testing::PrintToString(text);
    }
  }
  EXPECT_GT(num_compiled, 1000);
}

TEST(Scanner, LeavesTheRestToTheRegex) {
  const std::string deep = std::string(1000, '(') + "a" + std::string(1000, ')');
  std::string wide = "x";
  for (int i = 0; i < 12; ++i) wide = "(?:" + wide + "){20}";
  for (const std::string& pattern : {deep,
                                     wide,
                                     std::string("a*"),
                                     std::string("a|"),
                                     std::string("$"),
                                     std::string("(a)"),
                                     std::string("a++"),
                                     std::string("a+?"),
                                     std::string("\\w"),
                                     std::string("."),
                                     std::string("^a"),
                                     std::string("(?<=a)b"),
                                     std::string("(?=a)b"),
                                     std::string("[a[b]]"),
                                     std::string("[a"),
                                     std::string("(a"),
                                     std::string("a)"),
                                     std::string("\\p{Greek}"),
                                     std::string("\\p{"),
                                     std::string("a{2"),
                                     std::string("a{3,2}"),
                                     std::string("a{1000}"),
                                     std::string("[b-a]"),
                                     std::string("(?i:\\p{Lu})"),
                                     std::string("(?i:\xC3\xA9)"),
                                     std::string("\\"),
                                     std::string("(?:a?)+"),
                                     std::string("\\x{110000}"),
                                     std::string("[]"),
                                     std::string("a\xFF"),
                                     std::string("*a")}) {
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
