// A cache gives what was stored for the very piece, or nothing.
#include "tokenizer/word_cache.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace zipage {
namespace {

using Ids = std::vector<int32_t>;

TEST(WordCache, KnowsThePieceItself) {
  WordCache cache;
  std::vector<std::string> pieces;
  for (size_t size = 1; size <= WordCache::kMaxBytes; ++size) {
    std::string piece(size, 'a');
    pieces.push_back(piece);
    for (size_t at = 0; at < size; ++at) {
      piece[at] = '\0';
      pieces.push_back(piece);
      piece[at] = 'a';
    }
  }
  EXPECT_FALSE(WordCache::fits(""));
  EXPECT_FALSE(WordCache::fits(std::string(WordCache::kMaxBytes + 1, 'a')));
  Ids out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ASSERT_TRUE(WordCache::fits(pieces[i]));
    for (const uint8_t tag : {0, 1, 255}) {
      const WordCache::Key key(pieces[i], tag);
      ASSERT_FALSE(cache.find(key, out)) << i;
      const Ids ids(i % (WordCache::kMaxIds + 1), static_cast<int32_t>(256 * i + tag));
      cache.store(key, ids);
      out = {7};
      ASSERT_TRUE(cache.find(key, out));
      Ids expected = {7};
      expected.insert(expected.end(), ids.begin(), ids.end());
      ASSERT_EQ(out, expected);
    }
  }
}

TEST(WordCache, KeepsOnlyWhatFits) {
  WordCache cache;
  Ids out;
  cache.store({"many", 0}, Ids(WordCache::kMaxIds + 1, 1));
  EXPECT_FALSE(cache.find({"many", 0}, out));
  cache.store({"large", 0}, Ids{1 << 21});
  EXPECT_FALSE(cache.find({"large", 0}, out));
  cache.store({"negative", 0}, Ids{-1});
  EXPECT_FALSE(cache.find({"negative", 0}, out));
  cache.store({"largest", 0}, Ids{(1 << 21) - 1, 0});
  EXPECT_TRUE(cache.find({"largest", 0}, out));
  EXPECT_EQ(out, (Ids{(1 << 21) - 1, 0}));
}

TEST(WordCache, ThreadsSeeWholeEntries) {
  WordCache cache(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      Ids out;
      for (int i = 0; i < 20000; ++i) {
        const int number = (i * (t + 3)) % 50;
        const std::string piece = "piece " + std::to_string(number);
        const Ids ids(static_cast<size_t>(number) % WordCache::kMaxIds, number);
        const WordCache::Key key(piece, 0);
        out.clear();
        if (cache.find(key, out)) {
          ASSERT_EQ(out, ids);
        } else {
          ASSERT_TRUE(out.empty());
          cache.store(key, ids);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace zipage
