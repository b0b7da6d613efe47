// Random loads: nothing is lost, nothing leaks, nobody waits for ever, and what a sequence keeps
// does not depend on who runs with it.
#include <gtest/gtest.h>
#include <random>

#include "schedule/driver.h"

namespace zipage::testing {
namespace {

struct Request {
  SequenceSpec spec;
  int32_t num_output = 0;
};

SchedulerOptions tiny_options(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  SchedulerOptions options;
  options.scheduling = pick(0, 1) == 0 ? Scheduling::kHybrid : Scheduling::kConstrained;
  options.block_size = 8;
  options.compression.window_size = 4;
  options.compression.protect_newest = 0;
  options.compression.attention_half_life = pick(1, 12);
  options.max_blocks_per_seq = 5;
  options.num_blocks = pick(8, 40);
  options.max_query_slots = pick(1, 8);
  options.max_num_seqs = pick(1, 16);
  options.max_num_batched_tokens = pick(1, 3) == 1 ? pick(1, 16) : 64;
  options.max_model_len = 150;
  options.num_host_blocks = pick(0, 1) == 0 ? 0 : pick(1, 30);
  options.enable_prefix_caching = pick(0, 2) > 0;
  options.watermark = pick(0, 2) == 0;
  return options;
}

std::vector<Request> random_requests(std::mt19937& random, const Scheduler& scheduler) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Request> requests;
  while (requests.size() < 20) {
    Request r;
    r.spec.id = requests.size() + 1;
    r.spec.priority = pick(0, 9) == 0 ? -1 : 0;
    const int kind = pick(0, 4);
    r.spec.kv_budget = kind == 0 ? kFullKv : 8 * pick(2, 4);
    r.spec.kv_policy = pick(0, 2) == 0 ? KvPolicy::kPaper : KvPolicy::kPeak;
    const int length = pick(1, 4) == 1 ? pick(1, 70) : pick(1, 30);
    const int variant = pick(0, 2);
    for (int i = 0; i < length; ++i) r.spec.prompt.push_back(i * 7 + (i > 12 ? variant : 0));
    r.spec.max_new_tokens = pick(1, 80);
    r.num_output = pick(1, static_cast<int>(r.spec.max_new_tokens));
    if (r.spec.prompt.size() + static_cast<size_t>(r.num_output) > 150) continue;
    if (!scheduler.can_ever_run(r.spec).ok()) {
      if (pick(0, 3) == 0) r.spec.prompt.resize(1);
      continue;
    }
    requests.push_back(std::move(r));
  }
  return requests;
}

void run_alone(Driver& driver, const Request& r) {
  driver.add(r.spec, r.num_output);
  for (int i = 0; i < 2000 && !driver.finished(r.spec.id); ++i) driver.step();
  ASSERT_TRUE(driver.finished(r.spec.id));
}

TEST(LoadTest, NothingIsLostAndNothingDependsOnLoad) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const SchedulerOptions options = tiny_options(random);
    Driver driver(options);
    const std::vector<Request> requests = random_requests(random, driver.scheduler());
    const bool async = pick(0, 1) == 1;
    const bool overlapped = pick(0, 2) == 0;
    size_t added = 0;
    std::set<SequenceId> aborted;
    int steps = 0;
    for (; steps < 20000 && (added < requests.size() || driver.scheduler().has_unfinished());
         ++steps) {
      if (added < requests.size() && pick(0, 3) == 0) {
        driver.add(requests[added].spec, requests[added].num_output);
        ++added;
      }
      if (pick(0, 199) == 0 && added > 0) {
        const SequenceId id = static_cast<SequenceId>(pick(1, static_cast<int>(added)));
        if (!driver.finished(id)) aborted.insert(id);
        driver.abort(id);
      }
      if (pick(0, 99) == 0 && added > 0) {
        driver.scheduler().force_preempt(static_cast<SequenceId>(pick(1, static_cast<int>(added))));
        driver.scheduler().check_invariants();
      }
      driver.plan();
      if (driver.spinning()) driver.commit_plan();
      ASSERT_FALSE(driver.spinning());
      while (driver.num_plans() > (overlapped && pick(0, 1) == 1 ? 1u : 0u)) driver.commit_plan();
      while (driver.num_open_jobs() > 0 && (!async || pick(0, 3) == 0)) {
        const size_t index =
            static_cast<size_t>(pick(0, static_cast<int>(driver.num_open_jobs()) - 1));
        driver.complete(index, pick(0, 49) != 0);
      }
    }
    ASSERT_LT(steps, 20000) << "not everything finished";
    const SchedulerStats stats = driver.scheduler().stats();
    EXPECT_EQ(stats.num_free_blocks, options.num_blocks);
    EXPECT_EQ(stats.num_used_slots, 0);
    for (const Request& r : requests) {
      if (aborted.count(r.spec.id) > 0 || driver.failed(r.spec.id)) continue;
      ASSERT_TRUE(driver.finished(r.spec.id)) << r.spec.id;
      SchedulerOptions calm = options;
      calm.enable_prefix_caching = false;
      calm.num_host_blocks = 0;
      calm.max_num_batched_tokens = 1000;
      Driver alone(calm);
      run_alone(alone, r);
      EXPECT_EQ(driver.trajectory(r.spec.id), alone.trajectory(r.spec.id)) << r.spec.id;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace zipage::testing
