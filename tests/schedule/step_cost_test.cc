// Once running, steps allocate nothing; and the cost of a step is reported (properties of the
// test).
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <gtest/gtest.h>
#include <new>
#include <string>

#include "schedule/scheduler.h"

namespace {

std::atomic<int64_t> num_allocations{0};

}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace zipage {
namespace {

TEST(StepCostTest, DecodingAllocatesNothing) {
  constexpr int32_t kNumSequences = 256;
  SchedulerOptions options;
  options.block_size = 256;
  options.num_blocks = kNumSequences * 8;
  options.max_query_slots = kNumSequences;
  options.max_blocks_per_seq = 8;
  options.max_num_seqs = kNumSequences;
  options.max_num_batched_tokens = 16384;
  options.max_model_len = 4096;
  const auto scheduler = Scheduler::create(options);
  for (SequenceId id = 0; id < kNumSequences + 50; ++id) {  // the last 50 wait
    SequenceSpec spec;
    spec.id = id;
    spec.prompt.assign(300, static_cast<int32_t>(id));
    spec.max_new_tokens = 2000;
    spec.kv_budget = 1792;
    scheduler->add(std::move(spec));
  }
  std::vector<RowResult> results;
  results.reserve(kNumSequences);
  const auto step = [&] {
    const StepPlan& plan = scheduler->plan();
    results.clear();
    for (const PlannedRow& row : plan.rows) results.push_back({row.samples, 1, false});
    EXPECT_TRUE(scheduler->commit(plan, results).empty());
  };
  for (int i = 0; i < 50; ++i) step();
  ASSERT_EQ(scheduler->stats().num_running, kNumSequences);
  const int64_t before = num_allocations;
  const std::clock_t start = std::clock();  // of this process: others may have the cores
  constexpr int kSteps = 600;               // every sequence takes new blocks on the way
  for (int i = 0; i < kSteps; ++i) step();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(num_allocations - before, 0);
  RecordProperty("microseconds_per_step", std::to_string(seconds / kSteps * 1e6));
  EXPECT_LT(seconds / kSteps, 2e-3);  // of 50 us on a quiet machine
}

}  // namespace
}  // namespace zipage
