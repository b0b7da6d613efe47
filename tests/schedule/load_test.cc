// Random loads: nothing is lost, nothing leaks, nobody waits for ever, and what a sequence keeps
// does not depend on who runs with it. ZIPAGE_SOAK_SECONDS makes it go on for longer.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <ostream>
#include <random>
#include <rapidcheck.h>
#include <set>

#include "schedule/driver.h"

namespace zipage::testing {
namespace {

constexpr int32_t kMaxModelLen = 150;

// What shrinks when a case fails; the rest comes from the seed.
struct Load {
  uint32_t seed = 0;
  int num_requests = 20;
  bool hybrid = true, prefix = true, watermark = true, swap = true, async = true, overlapped = true;
  bool aborts = true, failures = true, preemptions = true, priorities = true, full_kv = true;
};

std::ostream& operator<<(std::ostream& out, const Load& l) {
  return out << "{" << l.seed << ", " << l.num_requests << ", " << l.hybrid << ", " << l.prefix
             << ", " << l.watermark << ", " << l.swap << ", " << l.async << ", " << l.overlapped
             << ", " << l.aborts << ", " << l.failures << ", " << l.preemptions << ", "
             << l.priorities << ", " << l.full_kv << "}";
}

struct Request {
  SequenceSpec spec;
  int32_t num_output = 0;
};

struct Totals {
  int64_t preemptions = 0, recomputed = 0, swapped = 0, compressions = 0, hits = 0, blocked = 0;
};

class LoadRun {
 public:
  explicit LoadRun(const Load& load) : load_(load), random_(load.seed) {}

  Totals run() {
    const SchedulerOptions options = random_options();
    Driver driver(options);
    make_requests(driver.scheduler());
    size_t added = 0;
    int steps = 0;
    for (; steps < 20000 && (added < requests_.size() || driver.scheduler().has_unfinished());
         ++steps) {
      if (added < requests_.size() && one_in(4)) {
        driver.add(requests_[added].spec, requests_[added].num_output);
        ++added;
      }
      if (added > 0) disturb(driver, static_cast<int>(added));
      driver.plan();
      const bool stopped = driver.spinning();
      while (driver.num_plans() > (load_.overlapped && !stopped && one_in(2) ? 1u : 0u))
        driver.commit_plan();
      RC_ASSERT_FALSE(driver.spinning());
      while (driver.num_open_jobs() > 0 && (!load_.async || one_in(4))) {
        const size_t index =
            static_cast<size_t>(pick(0, static_cast<int>(driver.num_open_jobs()) - 1));
        driver.complete(index, !(load_.failures && one_in(50)));
      }
    }
    RC_ASSERT(steps < 20000);  // everything ends
    const SchedulerStats stats = driver.scheduler().stats();
    RC_ASSERT(stats.num_free_blocks == options.num_blocks);
    RC_ASSERT(stats.num_used_slots == 0);
    for (const Request& r : requests_) compare_with_a_run_alone(driver, r);
    return {stats.preemptions,  stats.recomputed_tokens, stats.swapped_out_blocks,
            stats.compressions, stats.prefix_hits,       stats.blocked_steps};
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool one_in(int n) { return pick(1, n) == 1; }

  SchedulerOptions random_options() {
    SchedulerOptions options;
    options.scheduling = load_.hybrid ? Scheduling::kHybrid : Scheduling::kConstrained;
    options.block_size = 8;
    options.compression.window_size = 4;
    options.compression.protect_newest = 0;
    options.compression.attention_half_life = pick(1, 12);
    options.max_blocks_per_seq = 5;
    options.num_blocks = pick(8, 40);
    options.max_query_slots = pick(1, 8);
    options.max_num_seqs = pick(1, 16);
    options.max_num_batched_tokens = one_in(3) ? pick(1, 16) : 64;
    options.max_model_len = kMaxModelLen;
    options.num_host_blocks = load_.swap ? pick(1, 30) : 0;
    if (options.num_host_blocks > 0 && options.num_host_blocks % 3 == 0)
      options.num_host_slots = options.num_host_blocks / 6;
    options.enable_prefix_caching = load_.prefix;
    options.watermark = load_.watermark;
    return options;
  }

  void make_requests(const Scheduler& scheduler) {
    while (static_cast<int>(requests_.size()) < load_.num_requests) {
      Request r;
      r.spec.id = requests_.size() + 1;
      r.spec.priority = load_.priorities && one_in(8) ? -1 : 0;
      r.spec.kv_budget = load_.full_kv && one_in(5) ? kFullKv : 8 * pick(2, 4);
      r.spec.kv_policy = one_in(3) ? KvPolicy::kPaper : KvPolicy::kPeak;
      const int length = one_in(4) ? pick(1, 70) : pick(1, 30);
      const int variant = pick(0, 2);  // a few prompts with common beginnings
      for (int i = 0; i < length; ++i) r.spec.prompt.push_back(i * 7 + (i > 12 ? variant : 0));
      r.spec.max_new_tokens = pick(1, std::min(80, kMaxModelLen - length));
      r.num_output = pick(1, static_cast<int>(r.spec.max_new_tokens));
      if (scheduler.can_ever_run(r.spec).ok()) requests_.push_back(std::move(r));
    }
  }

  void disturb(Driver& driver, int added) {
    if (load_.aborts && one_in(200)) {
      const SequenceId id = static_cast<SequenceId>(pick(1, added));
      if (!driver.finished(id)) aborted_.insert(id);
      driver.abort(id);
    }
    if (load_.preemptions && one_in(100)) {
      driver.scheduler().force_preempt(static_cast<SequenceId>(pick(1, added)));
      driver.scheduler().check_invariants();
    }
    if (load_.prefix && one_in(500)) {
      driver.scheduler().reset_prefix_cache();
      driver.scheduler().check_invariants();
    }
  }

  void compare_with_a_run_alone(const Driver& driver, const Request& r) const {
    if (aborted_.count(r.spec.id) > 0 || driver.failed(r.spec.id)) return;
    RC_ASSERT(driver.finished(r.spec.id));
    SchedulerOptions calm = driver.options();
    calm.enable_prefix_caching = false;
    calm.num_host_blocks = 0;
    calm.max_num_batched_tokens = 1000;
    calm.max_query_slots = 5;
    Driver alone(calm);
    alone.add(r.spec, r.num_output);
    for (int i = 0; i < 2000 && !alone.finished(r.spec.id); ++i) alone.step();
    RC_ASSERT(alone.finished(r.spec.id));
    RC_ASSERT(driver.trajectory(r.spec.id) == alone.trajectory(r.spec.id));
  }

  const Load load_;
  std::mt19937 random_;
  std::vector<Request> requests_;
  std::set<SequenceId> aborted_;
};

rc::Gen<Load> loads() {
  return rc::gen::exec([] {
    Load load;
    load.seed = *rc::gen::noShrink(rc::gen::resize(1000, rc::gen::arbitrary<uint32_t>()));
    load.num_requests = *rc::gen::resize(1000, rc::gen::inRange(1, 24));
    for (bool* flag :
         {&load.hybrid, &load.prefix, &load.watermark, &load.swap, &load.async, &load.overlapped,
          &load.aborts, &load.failures, &load.preemptions, &load.priorities, &load.full_kv}) {
      *flag = *rc::gen::arbitrary<bool>();
    }
    return load;
  });
}

TEST(LoadTest, CasesThatFailed) {
  LoadRun({4294967037u, 2, false, true, false, true, false, true, false, false, false, true, false})
      .run();
}

TEST(LoadTest, NothingIsLostAndNothingDependsOnLoad) {
  Totals totals;
  const char* soak = std::getenv("ZIPAGE_SOAK_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(soak != nullptr ? std::atoi(soak) : 0);
  do {
    const bool passed = rc::check([&] {
      for (const Load& load : *rc::gen::container<std::vector<Load>>(4, loads())) {
        const Totals t = LoadRun(load).run();
        totals.preemptions += t.preemptions;
        totals.recomputed += t.recomputed;
        totals.swapped += t.swapped;
        totals.compressions += t.compressions;
        totals.hits += t.hits;
        totals.blocked += t.blocked;
      }
    });
    ASSERT_TRUE(passed);
  } while (std::chrono::steady_clock::now() < end);
  // The loads must get to the places that matter.
  EXPECT_GT(totals.preemptions, 50);
  EXPECT_GT(totals.recomputed, 50);
  EXPECT_GT(totals.swapped, 20);
  EXPECT_GT(totals.compressions, 200);
  EXPECT_GT(totals.hits, 200);
  EXPECT_GT(totals.blocked, 50);
}

}  // namespace
}  // namespace zipage::testing
