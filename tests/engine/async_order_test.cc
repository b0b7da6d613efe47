// Compressions on a manual stream: up to six jobs in flight, every order in which the engine can
// see them end, their work interleaved with the steps of the others; and one of them failing.
#include <algorithm>
#include <numeric>
#include <set>

#include "engine/tiny_engine.h"

namespace zipage::testing_engine {
namespace {

// Prompts of one length: all reach their trigger in the same step. The even ones share the first
// block of their prompt. They end at different lengths, after further compressions.
Request request_of(int i) {
  Request r = tiny_request(i % 2 == 0 ? 7 : 11 + 13 * i, 40, 16 + 9 * (i % 4));
  for (size_t k = 20; k < r.prompt_token_ids.size(); ++k)
    r.prompt_token_ids[k] = 3 + (r.prompt_token_ids[k] * (i + 2)) % 90;
  r.sampling.kv_budget = 2 * kTinyBlock;
  r.sampling.kv_policy = i % 3 == 1 ? KvPolicy::kPaper : KvPolicy::kPeak;
  if (i % 2 == 1) {
    r.sampling.temperature = 0.9;
    r.sampling.seed = 5 + static_cast<uint64_t>(i);
  }
  return r;
}

// Never compressed: there is always somebody to go on with.
Request bystander() {
  Request r = tiny_request(3, 9, 90);
  r.sampling.kv_budget = kFullKv;
  return r;
}

class OrderRun {
 public:
  OrderRun(const testing::TinyModel& model, int num_jobs) : num_jobs_(num_jobs) {
    EngineOptions options = tiny_options(model);
    options.enable_prefix_caching = false;
    options.async_compression = false;
    TinyEngine calm(options);
    for (int i = 0; i <= num_jobs; ++i) {
      calm.submit(i < num_jobs ? request_of(i) : bystander());
      calm.finish();
      expected_.push_back(calm.answer(static_cast<size_t>(i)));
    }
    options.enable_prefix_caching = true;
    options.async_compression = true;
    testing::UnrulyBackend::Behaviour behaviour;
    behaviour.manual = true;
    engine_ = std::make_unique<TinyEngine>(options, std::move(behaviour));
  }

  // `order`: jobs in the order in which the engine sees them end; `failing`: of them, or -1.
  void run(const std::vector<int>& order, int failing, int tasks_a_step) {
    TinyEngine& tiny = *engine_;
    testing::UnrulyBackend& backend = tiny.backend();
    const int64_t first = backend.num_jobs_enqueued();
    std::set<int64_t> held;
    for (int k = 0; k < num_jobs_; ++k) held.insert(first + k);
    backend.behaviour.holds = [&](int64_t job) { return held.count(job) > 0; };
    backend.behaviour.fails = [&](int64_t job) { return failing >= 0 && job == first + failing; };
    const int64_t before = tiny.stats().compressions;
    for (int i = 0; i < num_jobs_; ++i) tiny.submit(request_of(i));
    tiny.submit(bystander());
    while (backend.num_jobs_enqueued() < first + num_jobs_) ASSERT_TRUE(tiny.step());
    ASSERT_EQ(tiny.stats().num_compressing, num_jobs_);
    for (size_t k = 0; k < order.size(); ++k) {
      backend.run_compressions(tasks_a_step);
      ASSERT_TRUE(tiny.step());  // nothing ends before it is let go
      ASSERT_EQ(tiny.stats().num_compressing, num_jobs_ - static_cast<int>(k));
      held.erase(first + order[k]);
      // Its work, and that of those before it on the stream.
      while (tiny.stats().num_compressing > num_jobs_ - 1 - static_cast<int>(k)) {
        backend.run_compressions(30 + tasks_a_step);
        ASSERT_TRUE(tiny.step());
      }
      ASSERT_EQ(tiny.stats().num_compressing, num_jobs_ - 1 - static_cast<int>(k));
    }
    while (tiny.step()) backend.run_compressions(5);
    int num_failed = 0;
    for (int i = 0; i <= num_jobs_; ++i) {
      const Answer& answer = tiny.answer(static_cast<size_t>(i));
      const Answer& expected = expected_[static_cast<size_t>(i)];
      if (answer.finish == FinishReason::kError) {
        ++num_failed;
        EXPECT_EQ(answer.error.message(), "this compression must fail");
        continue;
      }
      ASSERT_EQ(answer.finish, FinishReason::kLength) << i;
      ASSERT_EQ(answer.tokens, expected.tokens) << i;
      ASSERT_EQ(answer.logprobs, expected.logprobs) << i;
    }
    EXPECT_EQ(num_failed, failing >= 0 ? 1 : 0);
    EXPECT_GE(tiny.stats().compressions - before, num_jobs_ - num_failed);
    tiny.expect_nothing_held();
    tiny.clear();
  }
  const EngineStats stats() const { return engine_->stats(); }

 private:
  const int num_jobs_;
  std::vector<Answer> expected_;
  std::unique_ptr<TinyEngine> engine_;
};

TEST(AsyncOrderTest, EveryOrderOfUpToSixJobsGivesTheSameTokens) {
  const testing::TinyModel model;
  for (int num_jobs = 1; num_jobs <= 6; ++num_jobs) {
    OrderRun run(model, num_jobs);
    std::vector<int> order(static_cast<size_t>(num_jobs));
    std::iota(order.begin(), order.end(), 0);
    int count = 0;
    do {
      SCOPED_TRACE(::testing::PrintToString(order));
      ASSERT_NO_FATAL_FAILURE(run.run(order, /*failing=*/-1, count % 7));
      ASSERT_NO_FATAL_FAILURE(run.run(order, /*failing=*/count % num_jobs, count % 5));
      ASSERT_FALSE(HasFailure());
      ++count;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(count, (std::vector<int>{1, 1, 2, 6, 24, 120, 720})[static_cast<size_t>(num_jobs)]);
    // Further compressions of the same requests, and prompts that were shared.
    EXPECT_GE(run.stats().compressions, (2 * num_jobs - 1) * count);
    if (num_jobs == 6) {
      EXPECT_GT(run.stats().compressions, 2 * num_jobs * count);
    }
    EXPECT_GT(run.stats().prefix_cache_hits, 0);
  }
}

}  // namespace
}  // namespace zipage::testing_engine
