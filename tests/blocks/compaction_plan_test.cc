// The choice of targets of method.md 4, case by case.
#include "blocks/compaction_plan.h"

#include <gtest/gtest.h>
#include <vector>

namespace zipage {
namespace {

struct Table {
  explicit Table(int num_blocks, int num_shared, int num_cached) : pool(32) {
    for (int i = 0; i < num_blocks; ++i) blocks.push_back(pool.allocate().block);
    for (int i = 0; i < num_shared; ++i) pool.acquire(blocks[static_cast<size_t>(i)]);
    for (int i = 0; i < num_cached; ++i) pool.set_cached(blocks[static_cast<size_t>(i)], true);
  }
  std::vector<bool> replaced(const CompactionPlan& plan, int num_targets) const {
    std::vector<bool> result;
    for (int i = 0; i < num_targets; ++i)
      result.push_back(is_replaced(pool, plan, blocks[static_cast<size_t>(i)]));
    return result;
  }
  BlockPool pool;
  std::vector<BlockId> blocks;
};

TEST(CompactionPlanTest, WithoutSharingEverythingStaysInPlace) {
  const Table t(4, 0, 0);
  const CompactionPlan plan = plan_compaction(t.pool, t.blocks, 3, 0);
  EXPECT_EQ(plan.num_new, 0);
  EXPECT_EQ(t.replaced(plan, 3), (std::vector<bool>{false, false, false}));
}

TEST(CompactionPlanTest, FewerSharedBlocksThanTargets) {
  const Table t(4, 2, 2);
  const CompactionPlan plan = plan_compaction(t.pool, t.blocks, 3, 0);
  EXPECT_EQ(plan.num_new, 2);  // P new ones, N_max-1-P of its own
  EXPECT_EQ(t.replaced(plan, 3), (std::vector<bool>{true, true, false}));
}

TEST(CompactionPlanTest, AsManySharedBlocksAsTargetsOrMore) {
  for (const int shared : {3, 5}) {
    const Table t(6, shared, shared);
    const CompactionPlan plan = plan_compaction(t.pool, t.blocks, 3, 0);
    EXPECT_EQ(plan.num_new, 3);
    EXPECT_EQ(t.replaced(plan, 3), (std::vector<bool>{true, true, true}));
  }
}

// The published code destroys the prompt of its only user.
TEST(CompactionPlanTest, TheOnlyUsersPromptStaysWhileThereIsRoom) {
  const Table t(4, 0, 2);
  EXPECT_EQ(plan_compaction(t.pool, t.blocks, 3, 2).num_new, 2);
  const CompactionPlan narrow = plan_compaction(t.pool, t.blocks, 3, 1);
  EXPECT_EQ(narrow.num_new, 0);
  EXPECT_EQ(t.replaced(narrow, 3), (std::vector<bool>{false, false, false}));
}

TEST(CompactionPlanTest, SharedBlocksAreReplacedWhateverTheRoom) {
  const Table t(4, 1, 2);
  const CompactionPlan narrow = plan_compaction(t.pool, t.blocks, 3, 1);
  EXPECT_EQ(narrow.num_new, 1);
  EXPECT_EQ(t.replaced(narrow, 3), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(plan_compaction(t.pool, t.blocks, 3, 2).num_new, 2);
}

}  // namespace
}  // namespace zipage
