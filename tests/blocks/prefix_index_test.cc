#include "blocks/prefix_index.h"

#include <gtest/gtest.h>
#include <map>
#include <rapidcheck.h>

#include "base/check.h"

namespace zipage {
namespace {

using Handle = PrefixIndex::Handle;
const std::vector<std::string> kNoKeys;

TEST(PrefixHashesTest, CoverEverythingBeforeThem) {
  const std::vector<int32_t> a = {1, 2, 3, 4, 5};
  const std::vector<int32_t> b = {1, 9, 3, 4, 5};
  const auto plain = prefix_hashes(a, 2, kNoKeys);
  ASSERT_EQ(plain.size(), 2u);  // full blocks only
  EXPECT_NE(plain[0], plain[1]);
  EXPECT_EQ(plain, prefix_hashes(std::vector<int32_t>{1, 2, 3, 4}, 2, kNoKeys));
  EXPECT_NE(plain[1], prefix_hashes(b, 2, kNoKeys)[1]);  // same tokens, other ones before them
  const std::vector<std::string> salt = {"a"}, two = {"a", "b"}, joined = {"ab"};
  EXPECT_NE(plain[0], prefix_hashes(a, 2, salt)[0]);
  EXPECT_NE(prefix_hashes(a, 2, two)[0], prefix_hashes(a, 2, joined)[0]);
}

TEST(PrefixIndexTest, FindsWhatWasPublished) {
  PrefixIndex index(4, 2);
  const std::vector<int32_t> first = {1, 2}, second = {3, 4};
  BlockId replaced;
  const Handle a = index.publish(BlockId(3), {11, first, kNoKeys, {}}, &replaced);
  EXPECT_EQ(a.block, BlockId(3));
  const Handle b = index.publish(BlockId(0), {12, second, kNoKeys, a}, &replaced);
  EXPECT_EQ(index.find({11, first, kNoKeys, {}}), a);
  EXPECT_EQ(index.find({12, second, kNoKeys, a}), b);
  EXPECT_FALSE(index.find({12, second, kNoKeys, {}}).valid());
  index.prune(BlockId(0));
  EXPECT_FALSE(index.find({12, second, kNoKeys, a}).valid());
  EXPECT_FALSE(index.contains(BlockId(0)));
  index.prune(BlockId(0));  // nothing happens
  EXPECT_EQ(index.size(), 1);
}

// Equal hashes of different contents: a wrong hit would give a request another one's prompt.
TEST(PrefixIndexTest, ACollisionIsNoHit) {
  PrefixIndex index(4, 2);
  const std::vector<int32_t> one = {1, 2}, other = {7, 8}, child = {3, 4};
  const std::vector<std::string> salt = {"s"};
  BlockId replaced;
  const Handle a = index.publish(BlockId(0), {11, one, kNoKeys, {}}, &replaced);
  EXPECT_FALSE(index.find({11, other, kNoKeys, {}}).valid());  // tokens differ
  EXPECT_FALSE(index.find({11, one, salt, {}}).valid());       // keys differ
  EXPECT_FALSE(index.publish(BlockId(1), {11, other, kNoKeys, {}}, &replaced).valid());
  EXPECT_FALSE(replaced.valid());
  // The child of a colliding parent: same hash, same tokens, another predecessor.
  const Handle b = index.publish(BlockId(1), {21, other, kNoKeys, {}}, &replaced);
  index.publish(BlockId(2), {12, child, kNoKeys, a}, &replaced);
  EXPECT_FALSE(index.find({12, child, kNoKeys, b}).valid());
}

TEST(PrefixIndexTest, AnEntryWhosePredecessorWentIsUnreachableAndReplaced) {
  PrefixIndex index(4, 2);
  const std::vector<int32_t> first = {1, 2}, second = {3, 4};
  BlockId replaced;
  const Handle a = index.publish(BlockId(0), {11, first, kNoKeys, {}}, &replaced);
  index.publish(BlockId(1), {12, second, kNoKeys, a}, &replaced);
  index.prune(BlockId(0));
  EXPECT_FALSE(index.publish(BlockId(2), {13, second, kNoKeys, a}, &replaced)
                   .valid());  // its parent is gone
  const Handle again = index.publish(BlockId(0), {11, first, kNoKeys, {}}, &replaced);
  EXPECT_NE(again, a);
  EXPECT_FALSE(index.find({12, second, kNoKeys, again}).valid());
  const Handle b = index.publish(BlockId(2), {12, second, kNoKeys, again}, &replaced);
  EXPECT_EQ(replaced, BlockId(1));
  EXPECT_FALSE(index.contains(BlockId(1)));
  EXPECT_EQ(index.find({12, second, kNoKeys, again}), b);
}

TEST(PrefixIndexTest, TheFirstOfTwoEqualsIsKept) {
  PrefixIndex index(4, 2);
  const std::vector<int32_t> first = {1, 2};
  BlockId replaced;
  const Handle a = index.publish(BlockId(2), {11, first, kNoKeys, {}}, &replaced);
  EXPECT_EQ(index.publish(BlockId(3), {11, first, kNoKeys, {}}, &replaced), a);
  EXPECT_FALSE(index.contains(BlockId(3)));
}

// Few hashes, so that probe sequences run into each other.
TEST(PrefixIndexTest, AgreesWithAMap) {
  EXPECT_TRUE(rc::check([] {
    PrefixIndex index(6, 1);
    std::map<uint64_t, int32_t> model;  // hash -> block; tokens are the hash
    for (const auto& [publish, hash, block] :
         *rc::gen::container<std::vector<std::tuple<bool, uint64_t, int32_t>>>(
             rc::gen::tuple(rc::gen::arbitrary<bool>(), rc::gen::inRange<uint64_t>(0, 40),
                            rc::gen::inRange(0, 6)))) {
      if (publish && !index.contains(BlockId(block))) {
        const std::vector<int32_t> tokens = {static_cast<int32_t>(hash)};
        BlockId replaced;
        const Handle got = index.publish(BlockId(block), {hash, tokens, kNoKeys, {}}, &replaced);
        const auto [at, inserted] = model.emplace(hash, block);
        RC_ASSERT(got.block.value() == at->second);
      } else if (!publish) {
        index.prune(BlockId(block));
        std::erase_if(model,
                      [pruned = block](const auto& entry) { return entry.second == pruned; });
      }
      index.check_invariants();
      RC_ASSERT(index.size() == static_cast<int32_t>(model.size()));
      for (uint64_t h = 0; h < 40; ++h) {
        const std::vector<int32_t> tokens = {static_cast<int32_t>(h)};
        const Handle got = index.find({h, tokens, kNoKeys, {}});
        const auto expected = model.find(h);
        RC_ASSERT(got.valid() == (expected != model.end()));
        if (got.valid()) RC_ASSERT(got.block.value() == expected->second);
      }
    }
  }));
}

}  // namespace
}  // namespace zipage
