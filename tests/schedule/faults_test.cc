// The faults of the published implementation that concern scheduling, prefix cache, admission and
// predicates (method.md 7). Each test fails when the fault comes back. Thrash: simulate_test.cc.
#include <gtest/gtest.h>

#include "schedule/driver.h"

namespace zipage::testing {
namespace {

SchedulerOptions small_options() {
  SchedulerOptions options;
  options.num_blocks = 20;
  options.block_size = 4;
  options.max_query_slots = 3;
  options.max_blocks_per_seq = 3;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 16;
  options.max_model_len = 80;
  options.enable_prefix_caching = false;
  options.compression.window_size = 2;
  options.compression.protect_newest = 0;
  return options;
}

SequenceSpec spec_of(SequenceId id,
                     int32_t prompt,
                     int32_t first_token,
                     int64_t kv_budget = kFullKv) {
  SequenceSpec spec;
  spec.id = id;
  for (int32_t i = 0; i < prompt; ++i) spec.prompt.push_back(first_token + i);
  spec.max_new_tokens = 24;
  spec.kv_budget = kv_budget;
  spec.kv_policy = KvPolicy::kPaper;
  return spec;
}

const PlannedRow* row_of(const StepPlan& plan, SequenceId id) {
  for (const PlannedRow& row : plan.rows) {
    if (row.sequence == id) return &row;
  }
  return nullptr;
}

TEST(OversizeRequest, APromptAboveTheTokenBudgetRunsInChunks) {
  Driver driver(small_options());
  driver.add(spec_of(1, 50, 100), 2);
  driver.add(spec_of(2, 3, 200), 2);
  for (int i = 0; i < 8; ++i) driver.step();
  EXPECT_TRUE(driver.finished(1));
  EXPECT_TRUE(driver.finished(2));
}

TEST(OversizeRequest, APromptAboveThePoolIsRefusedAndStarvesNobody) {
  SchedulerOptions options = small_options();
  options.max_model_len = 1000;
  Driver driver(options);
  const Status status = driver.scheduler().can_ever_run(spec_of(1, 81, 100));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("81"), std::string::npos);
  EXPECT_NE(status.message().find("80"), std::string::npos);
  EXPECT_ANY_THROW(driver.scheduler().add(spec_of(1, 81, 100)));
  driver.add(spec_of(2, 3, 200), 1);
  driver.step();
  EXPECT_TRUE(driver.finished(2));
  EXPECT_FALSE(driver.scheduler().has_unfinished());
}

// What is protected follows the policy of the request, not the engine's.
TEST(OversizeRequest, ProtectionIsThatOfTheRequestsPolicy) {
  SchedulerOptions options = small_options();
  options.block_size = 16;
  options.num_blocks = 40;
  options.max_model_len = 200;
  options.max_blocks_per_seq = 6;
  options.compression.protect_newest.reset();
  options.compression.protect_prompt = true;
  options.compression.kv_policy = KvPolicy::kRecency;
  const auto scheduler = Scheduler::create(options);
  SequenceSpec spec = spec_of(1, 20, 0, 80);
  spec.max_new_tokens = 120;
  spec.kv_policy = KvPolicy::kPaper;  // the window's 2 and 20 of the prompt
  EXPECT_TRUE(scheduler->can_ever_run(spec).ok());
  spec.kv_policy = KvPolicy::kPeak;  // 64 and 20
  const Status status = scheduler->can_ever_run(spec);
  EXPECT_NE(status.message().find("84 entries are protected (64 newest, 0 sinks, 20 of"),
            std::string::npos)
      << status.message();
}

TEST(OversizeRequest, MoreProtectedThanKeptIsRefused) {
  SchedulerOptions options = small_options();
  options.compression.protect_prompt = true;
  const auto scheduler = Scheduler::create(options);
  EXPECT_TRUE(scheduler->can_ever_run(spec_of(1, 6, 0, 8)).ok());
  // 7 and the window's 2: 9 of 8.
  const Status status = scheduler->can_ever_run(spec_of(1, 7, 0, 8));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("9 entries are protected"), std::string::npos)
      << status.message();
  SequenceSpec brief = spec_of(1, 7, 0, 8);
  brief.max_new_tokens = 2;  // never compressed
  EXPECT_TRUE(scheduler->can_ever_run(brief).ok());
}

TEST(SwallowedFailure, OneFailedCompressionStopsNobody) {
  Driver driver(small_options());
  for (SequenceId id = 1; id <= 3; ++id)
    driver.add(spec_of(id, 4, static_cast<int32_t>(id) * 100, 8), 20);
  while (driver.num_open_jobs() < 3) driver.step(/*sync=*/false);
  driver.complete(1, /*ok=*/false);
  for (int i = 0; i < 60; ++i) driver.step();
  EXPECT_TRUE(driver.finished(1));
  EXPECT_TRUE(driver.failed(2));
  EXPECT_TRUE(driver.finished(3));
  EXPECT_FALSE(driver.scheduler().has_unfinished());
  EXPECT_EQ(driver.scheduler().stats().num_free_blocks, 20);
}

TEST(Admission, MaxNumSeqsBoundsTheRunningSet) {
  Driver driver(small_options());
  for (SequenceId id = 1; id <= 10; ++id)
    driver.add(spec_of(id, 2, static_cast<int32_t>(id) * 100), 5);
  for (int i = 0; i < 30; ++i) {
    driver.step();
    const SchedulerStats stats = driver.scheduler().stats();
    EXPECT_LE(stats.num_running + stats.num_compressing, 4);
  }
  EXPECT_FALSE(driver.scheduler().has_unfinished());
}

TEST(Admission, HitsAreNotCountedAsNewBlocksNorAsTokens) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  options.num_blocks = 12;
  options.max_num_batched_tokens = 40;
  Driver driver(options);
  SequenceSpec first = spec_of(1, 33, 500);
  first.max_new_tokens = 6;
  driver.add(first, 6);
  driver.step();  // holds 9 of 12 blocks
  SequenceSpec second = spec_of(2, 33, 500);
  second.max_new_tokens = 3;
  driver.add(second, 3);
  const StepPlan& plan = driver.plan();
  const PlannedRow* row = row_of(plan, 2);
  ASSERT_NE(row, nullptr);  // 9 blocks would not fit, 1 does
  EXPECT_EQ(row->position, 32);
  EXPECT_EQ(row->num_tokens, 1);
  EXPECT_EQ(plan.num_tokens, 2);  // 33 tokens of budget are not spent on it
  EXPECT_EQ(driver.scheduler().cached_tokens(2), 32);
  EXPECT_EQ(driver.scheduler().stats().prefix_hits, 32);
  driver.commit_plan();
}

TEST(Prefix, TheOnlyUsersPromptSurvivesItsCompression) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  Driver driver(options);
  driver.add(spec_of(1, 9, 500, 8), 20);
  while (driver.scheduler().stats().compressions == 0) driver.step();
  driver.add(spec_of(2, 9, 500, 8), 20);
  driver.step();
  EXPECT_EQ(driver.scheduler().cached_tokens(2), 8);
}

TEST(Prefix, NothingIsSharedBeforeItsKvExists) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  Driver driver(options);
  driver.add(spec_of(1, 9, 500), 5);
  driver.plan();
  driver.add(spec_of(2, 9, 500), 5);
  const StepPlan& early = driver.plan();  // the first plan is in flight
  ASSERT_NE(row_of(early, 2), nullptr);
  EXPECT_EQ(row_of(early, 2)->position, 0);
  driver.commit_plan();
  driver.add(spec_of(3, 9, 500), 5);
  EXPECT_EQ(row_of(driver.plan(), 3)->position, 8);
}

TEST(Prefix, AReusedBlockIsForgotten) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  options.num_blocks = 8;
  Driver driver(options);
  for (int32_t round = 0; round < 50; ++round) {
    driver.add(spec_of(static_cast<SequenceId>(round + 1), 9, 1000 + 100 * round), 1);
    driver.step();
    EXPECT_LE(driver.scheduler().stats().num_cached_blocks, 8);
  }
  driver.add(spec_of(100, 9, 1000), 1);
  driver.step();
  // The first prompt's blocks were reused long ago.
  EXPECT_EQ(driver.scheduler().stats().prefix_hits, 0);
}

TEST(Prefix, OtherKeysShareNothing) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  Driver driver(options);
  driver.add(spec_of(1, 9, 500), 1);
  driver.step();
  SequenceSpec salted = spec_of(2, 9, 500);
  salted.hash_keys = {"salt"};
  driver.add(salted, 1);
  driver.step();
  EXPECT_EQ(driver.scheduler().stats().prefix_hits, 0);
  driver.add(spec_of(3, 9, 500), 1);
  driver.step();
  EXPECT_EQ(driver.scheduler().stats().prefix_hits, 8);
  driver.scheduler().reset_prefix_cache();
  driver.add(spec_of(4, 9, 500), 1);
  driver.step();
  EXPECT_EQ(driver.scheduler().stats().prefix_hits, 8);
}

TEST(Predicates, QuestionsChangeNothing) {
  SchedulerOptions options = small_options();
  options.enable_prefix_caching = true;
  Driver asked(options), quiet(options);
  for (SequenceId id = 1; id <= 6; ++id) {
    const SequenceSpec spec = spec_of(id, 9, id % 2 == 0 ? 500 : 700, 8);
    asked.add(spec, 20);
    quiet.add(spec, 20);
  }
  for (int i = 0; i < 120; ++i) {
    for (int k = 0; k < 3; ++k) {
      EXPECT_TRUE(asked.scheduler().can_ever_run(spec_of(99, 9, 500, 8)).ok());
      asked.scheduler().stats();
      asked.scheduler().cached_tokens(1);
      asked.scheduler().has_unfinished();
    }
    const StepPlan& a = asked.plan();
    const StepPlan& b = quiet.plan();
    ASSERT_EQ(a.rows.size(), b.rows.size());
    ASSERT_EQ(a.blocks, b.blocks);
    if (b.rows.empty()) break;  // nobody asks the quiet one, not even whether it is done
    for (const auto driver : {&asked, &quiet}) {
      driver->commit_plan();
      while (driver->num_open_jobs() > 0) driver->complete(0);
    }
  }
  EXPECT_FALSE(quiet.scheduler().has_unfinished());
}

}  // namespace
}  // namespace zipage::testing
