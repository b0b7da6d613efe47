// Stop strings over text in pieces. The properties: how the text is cut never matters, nothing is
// lost, and nothing of a stop string leaks.
#include "sampling/stop_matcher.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace zipage {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& pieces,
             const std::vector<std::string>& stops,
             bool include) {
  const StopStrings strings(stops, include);
  StopMatcher matcher(strings);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (matcher.push(piece, &outcome.text)) break;
  }
  matcher.finish(&outcome.text);
  outcome.stop = matcher.matched();
  return outcome;
}

// The definition: read characters until the text so far ends with a stop string.
Outcome defined(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t length = 1; length <= text.size(); ++length) {
    const std::string read = text.substr(0, length);
    for (const std::string& stop : stops) {
      if (!stop.empty() && read.ends_with(stop)) {
        return {include ? read : read.substr(0, length - stop.size()), stop};
      }
    }
  }
  return {text, ""};
}

TEST(StopMatcher, FindsAStringAcrossPieces) {
  EXPECT_EQ(feed({"Hello wo", "rld and", " more"}, {"world"}, false), (Outcome{"Hello ", "world"}));
  EXPECT_EQ(feed({"Hello wo", "rld and", " more"}, {"world"}, true),
            (Outcome{"Hello world", "world"}));
  EXPECT_EQ(feed({"Hello wo", "rk"}, {"world"}, false), (Outcome{"Hello work", ""}));
  EXPECT_EQ(feed({"Hello wor"}, {"world"}, false), (Outcome{"Hello wor", ""}));
  EXPECT_EQ(feed({"abc"}, {}, false), (Outcome{"abc", ""}));
}

TEST(StopMatcher, TheFirstToEndWins) {
  EXPECT_EQ(feed({"abcd"}, {"bcd", "bc"}, false), (Outcome{"a", "bc"}));
  // They end together: the list's order.
  EXPECT_EQ(feed({"abcd"}, {"c", "abc"}, false), (Outcome{"ab", "c"}));
  EXPECT_EQ(feed({"abcd"}, {"abc", "c"}, false), (Outcome{"", "abc"}));
  EXPECT_EQ(feed({"aab"}, {"ab"}, false), (Outcome{"a", "ab"}));
}

TEST(StopMatcher, ReleasesWhatCannotStopAnyMore) {
  const StopStrings strings({"###", "\n\n"}, false);
  StopMatcher matcher(strings);
  std::string out;
  EXPECT_FALSE(matcher.push("one#", &out));
  EXPECT_EQ(out, "one");
  EXPECT_FALSE(matcher.push("#two\n", &out));
  EXPECT_EQ(out, "one##two");
  EXPECT_TRUE(matcher.push("\nthree", &out));
  EXPECT_EQ(out, "one##two");
  EXPECT_EQ(matcher.matched(), "\n\n");
  EXPECT_TRUE(matcher.push("four", &out));  // nothing more comes out
  matcher.finish(&out);
  EXPECT_EQ(out, "one##two");
}

// Beginnings that come again inside themselves: the search falls back and finds what it passed.
TEST(StopMatcher, RepeatedBeginnings) {
  EXPECT_EQ(feed({"ababac", "ababaca"}, {"ababab", "abaca"}, false), (Outcome{"ab", "abaca"}));
  EXPECT_EQ(feed({"aaa", "aab"}, {"aab"}, false), (Outcome{"aaa", "aab"}));
  EXPECT_EQ(feed({"xyxyxz"}, {"xyxz"}, true), (Outcome{"xyxyxz", "xyxz"}));
}

// A text that is nearly a long stop string again and again costs no more than reading it.
TEST(StopMatcher, LongStringsCostATextOnce) {
  const std::string almost(60000, 'a');
  const StopStrings strings({almost + "b", almost + "c"}, false);
  StopMatcher matcher(strings);
  std::string out;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 80000; ++i) ASSERT_FALSE(matcher.push("a", &out));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(out.size(), 20000u);
  EXPECT_TRUE(matcher.push("c", &out));
  EXPECT_EQ(out.size(), 20000u);
}

// Few letters, so that beginnings and overlaps are common.
std::string random_text(size_t max_length) {
  return *rc::gen::resize(static_cast<int>(max_length),
                          rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')));
}

TEST(StopMatcher, AnyCutOfTheTextGivesTheSame) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = random_text(60);
    std::vector<std::string> stops;
    const int num_stops = *rc::gen::inRange(0, 4);
    for (int i = 0; i < num_stops; ++i) {
      const std::string stop = random_text(6);
      if (!stop.empty()) stops.push_back(stop);
    }
    const bool include = *rc::gen::arbitrary<bool>();
    std::vector<std::string> pieces = {""};
    for (size_t begin = 0; begin < text.size();) {
      const auto length = static_cast<size_t>(*rc::gen::inRange(1, 7));
      pieces.push_back(text.substr(begin, length));
      begin += length;
    }
    const Outcome want = defined(text, stops, include);
    RC_ASSERT(feed(pieces, stops, include) == want);
    RC_ASSERT(feed({text}, stops, include) == want);
    RC_CLASSIFY(!want.stop.empty(), "stopped");
  }));
}

// At every moment what is out is a beginning of the final output: a client that saw it need not
// take it back.
TEST(StopMatcher, OutputIsNeverTakenBack) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = random_text(40);
    std::vector<std::string> stops = {random_text(5) + "a", random_text(3) + "b"};
    const Outcome want = defined(text, stops, false);
    const StopStrings strings(stops, false);
    StopMatcher matcher(strings);
    std::string out;
    for (const char c : text) {
      const bool stopped = matcher.push(std::string(1, c), &out);
      RC_ASSERT(want.text.starts_with(out));
      if (stopped) break;
    }
  }));
}

}  // namespace
}  // namespace zipage
