#include "blocks/block_pool.h"

#include <gtest/gtest.h>
#include <list>
#include <rapidcheck.h>
#include <vector>

#include "base/check.h"
#include "blocks/id_pool.h"

namespace zipage {
namespace {

std::vector<int32_t> take_all(BlockPool& pool) {
  std::vector<int32_t> order;
  while (pool.num_free() > 0) order.push_back(pool.allocate().block.value());
  return order;
}

TEST(BlockPoolTest, TakesLowestFirstAndReusesTheLastFreed) {
  BlockPool pool(4);
  EXPECT_EQ(pool.allocate().block, BlockId(0));
  EXPECT_EQ(pool.allocate().block, BlockId(1));
  pool.release(BlockId(0));
  EXPECT_EQ(take_all(pool), (std::vector<int32_t>{0, 2, 3}));
}

TEST(BlockPoolTest, CachedBlocksAreTakenLastAndTheLeastRecentlyUsedFirst) {
  BlockPool pool(4);
  take_all(pool);
  for (const int block : {2, 0, 3}) pool.set_cached(BlockId(block), true);
  for (const int block : {2, 0, 1, 3}) pool.release(BlockId(block));
  EXPECT_EQ(pool.num_cached_free(), 3);
  pool.acquire(BlockId(2));  // a hit makes it the most recent
  pool.release(BlockId(2));
  EXPECT_FALSE(pool.allocate().was_cached);  // 1
  const BlockPool::Taken taken = pool.allocate();
  EXPECT_EQ(taken.block, BlockId(0));
  EXPECT_TRUE(taken.was_cached);
  EXPECT_FALSE(pool.cached(BlockId(0)));
  EXPECT_EQ(take_all(pool), (std::vector<int32_t>{3, 2}));
}

TEST(BlockPoolTest, MisuseIsCaught) {
  BlockPool pool(1);
  EXPECT_THROW(pool.acquire(BlockId(0)), CheckFailure);  // free, and nothing in it
  pool.allocate();
  EXPECT_THROW(pool.allocate(), CheckFailure);
  pool.release(BlockId(0));
  EXPECT_THROW(pool.release(BlockId(0)), CheckFailure);
  EXPECT_THROW(pool.ref_count(BlockId(1)), CheckFailure);
  EXPECT_THROW(pool.ref_count(BlockId()), CheckFailure);
}

// Against a list kept in the plain way.
TEST(BlockPoolTest, AgreesWithAModel) {
  EXPECT_TRUE(rc::check([] {
    const int num_blocks = *rc::gen::inRange(1, 9);
    BlockPool pool(num_blocks);
    std::list<int> free;
    for (int i = 0; i < num_blocks; ++i) free.push_back(i);
    std::vector<int> refs(static_cast<size_t>(num_blocks), 0);
    std::vector<bool> cached(static_cast<size_t>(num_blocks), false);
    const auto put = [&](int block) {
      cached[static_cast<size_t>(block)] ? free.push_back(block) : free.push_front(block);
    };
    for (const auto& [action, pick] : *rc::gen::container<std::vector<std::pair<int, int>>>(
             rc::gen::pair(rc::gen::inRange(0, 4), rc::gen::inRange(0, 8)))) {
      const int block = pick % num_blocks;
      const size_t at = static_cast<size_t>(block);
      if (action == 0 && !free.empty()) {
        const int expected = free.front();
        free.pop_front();
        const BlockPool::Taken taken = pool.allocate();
        RC_ASSERT(taken.block.value() == expected);
        RC_ASSERT(taken.was_cached == cached[static_cast<size_t>(expected)]);
        refs[static_cast<size_t>(expected)] = 1;
        cached[static_cast<size_t>(expected)] = false;
      } else if (action == 1 && refs[at] > 0) {
        pool.release(BlockId(block));
        if (--refs[at] == 0) put(block);
      } else if (action == 2 && (refs[at] > 0 || cached[at])) {
        pool.acquire(BlockId(block));
        if (refs[at]++ == 0) free.remove(block);
      } else if (action == 3) {
        const bool value = !cached[at];
        pool.set_cached(BlockId(block), value);
        cached[at] = value;
        if (refs[at] == 0) {
          free.remove(block);
          put(block);
        }
      }
      pool.check_invariants();
      RC_ASSERT(pool.num_free() == static_cast<int>(free.size()));
      for (int i = 0; i < num_blocks; ++i)
        RC_ASSERT(pool.ref_count(BlockId(i)) == refs[static_cast<size_t>(i)]);
    }
  }));
}

TEST(IdPoolTest, GivesEveryIdOnce) {
  SlotPool pool(3);
  EXPECT_EQ(pool.allocate(), SlotId(0));
  EXPECT_EQ(pool.allocate(), SlotId(1));
  EXPECT_EQ(pool.allocate(), SlotId(2));
  EXPECT_THROW(pool.allocate(), CheckFailure);
  pool.release(SlotId(1));
  EXPECT_FALSE(pool.taken(SlotId(1)));
  EXPECT_THROW(pool.release(SlotId(1)), CheckFailure);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.allocate(), SlotId(1));
}

}  // namespace
}  // namespace zipage
