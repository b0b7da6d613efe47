// Every order in which up to 6 concurrent compressions can end, with steps of the others in
// between, and one of them failing: the rest is as if it had run alone.
#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "schedule/driver.h"

namespace zipage::testing {
namespace {

SchedulerOptions options_for(int num_jobs) {
  SchedulerOptions options;
  options.block_size = 4;
  options.num_blocks = 3 * num_jobs + 6;
  options.max_query_slots = num_jobs;
  options.max_blocks_per_seq = 3;
  options.max_num_seqs = num_jobs + 1;
  options.max_num_batched_tokens = 200;
  options.max_model_len = 80;
  options.compression.window_size = 2;
  options.compression.protect_newest = 0;
  options.compression.attention_half_life = 2;
  return options;
}

// All reach their trigger, 12 tokens, in the same step; the even ones share a block of their
// prompt. They finish at different lengths.
SequenceSpec spec_of(SequenceId id) {
  SequenceSpec spec;
  spec.id = id;
  for (int32_t i = 0; i < 6; ++i)
    spec.prompt.push_back(id % 2 == 0 ? i : static_cast<int32_t>(id) * 100 + i);
  spec.max_new_tokens = 20;
  spec.kv_budget = 8;
  spec.kv_policy = id % 3 == 0 ? KvPolicy::kPaper : KvPolicy::kPeak;
  return spec;
}

int32_t output_of(SequenceId id) { return 8 + static_cast<int32_t>(id) % 4; }

Trajectory alone(SequenceId id, int num_jobs) {
  Driver driver(options_for(num_jobs));
  driver.add(spec_of(id), output_of(id));
  while (!driver.finished(id)) driver.step();
  return driver.trajectory(id);
}

// Returns how many jobs were open at once.
size_t run(int num_jobs,
           const std::vector<int>& order,
           int failing,
           const std::vector<Trajectory>& expected) {
  Driver driver(options_for(num_jobs));
  SequenceSpec bystander = spec_of(100);
  bystander.kv_budget = kFullKv;
  bystander.max_new_tokens = 18;
  driver.add(bystander, 18);
  for (int i = 1; i <= num_jobs; ++i)
    driver.add(spec_of(static_cast<SequenceId>(i)), output_of(static_cast<SequenceId>(i)));
  for (int i = 0; i < 40 && driver.num_open_jobs() < static_cast<size_t>(num_jobs); ++i)
    driver.step(/*sync=*/false);
  const size_t open = driver.num_open_jobs();
  for (const int which : order) {
    const SequenceId id = static_cast<SequenceId>(which + 1);
    for (size_t i = 0; i < driver.jobs().size(); ++i) {
      if (driver.jobs()[i].sequence != id) continue;
      driver.complete(i, which != failing);
      break;
    }
    driver.step(/*sync=*/false);
  }
  for (int i = 0; i < 100 && driver.scheduler().has_unfinished(); ++i) driver.step();
  EXPECT_FALSE(driver.scheduler().has_unfinished());
  EXPECT_TRUE(driver.finished(100));
  EXPECT_EQ(driver.scheduler().stats().num_free_blocks, driver.options().num_blocks);
  for (int i = 0; i < num_jobs; ++i) {
    const SequenceId id = static_cast<SequenceId>(i + 1);
    EXPECT_EQ(driver.failed(id), i == failing);
    EXPECT_EQ(driver.finished(id), i != failing);
    if (i == failing) continue;
    EXPECT_EQ(driver.trajectory(id), expected[static_cast<size_t>(i)]);
  }
  return open;
}

TEST(InterleavingsTest, EveryCompletionOrder) {
  for (int num_jobs = 1; num_jobs <= 6; ++num_jobs) {
    std::vector<Trajectory> expected;
    for (int i = 1; i <= num_jobs; ++i)
      expected.push_back(alone(static_cast<SequenceId>(i), num_jobs));
    std::vector<int> order(static_cast<size_t>(num_jobs));
    std::iota(order.begin(), order.end(), 0);
    int count = 0;
    do {
      ASSERT_EQ(run(num_jobs, order, /*failing=*/-1, expected), static_cast<size_t>(num_jobs));
      ASSERT_EQ(run(num_jobs, order, /*failing=*/count % num_jobs, expected),
                static_cast<size_t>(num_jobs));
      ASSERT_FALSE(HasFailure());
      ++count;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(count, (std::vector<int>{1, 1, 2, 6, 24, 120, 720})[static_cast<size_t>(num_jobs)]);
  }
}

}  // namespace
}  // namespace zipage::testing
