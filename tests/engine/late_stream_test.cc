// A host that runs ahead of a late device (tests/support/late_backend.h): what the host writes is
// still there when the device reads it, whatever the engine is asked for, and failures, aborts and
// the end of an engine find everything in order. matrix_test.cc runs its requests on such a device
// too.
#include <optional>

#include "base/error.h"
#include "engine/tiny_engine.h"
#include "support/late_backend.h"

namespace zipage::testing_engine {
namespace {

class LateEngine : public EngineOver<testing::LateBackend> {
 public:
  explicit LateEngine(const EngineOptions& options, double progress = 0, uint32_t seed = 1)
      : EngineOver(options, late(options.num_threads, progress, seed)) {}
  void expect_in_order() {
    EXPECT_EQ(backend().violations(), std::vector<std::string>{});
    const EngineStats s = engine().stats();
    EXPECT_EQ(s.num_free_blocks, s.num_blocks);
    EXPECT_EQ(s.num_used_query_slots, 0);
  }

 private:
  static std::unique_ptr<testing::LateBackend> late(int num_threads,
                                                    double progress,
                                                    uint32_t seed) {
    auto backend = std::make_unique<testing::LateBackend>(num_threads, seed);
    backend->behaviour.progress = progress;
    return backend;
  }
};

class LateStream : public ::testing::Test {
 protected:
  // On a device that computes at once.
  std::vector<Answer> right_answers(const std::vector<Request>& requests) {
    TinyEngine tiny(options_);
    for (const Request& r : requests) tiny.submit(r);
    tiny.finish();
    std::vector<Answer> list;
    for (size_t i = 0; i < requests.size(); ++i) list.push_back(tiny.answer(i));
    return list;
  }
  static void expect_same(const LateEngine& late, const std::vector<Answer>& right) {
    ASSERT_EQ(late.num_answers(), right.size());
    for (size_t i = 0; i < right.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(late.answer(i).error.message(), "");
      EXPECT_EQ(late.answer(i).tokens, right[i].tokens);
      EXPECT_EQ(late.answer(i).logprobs, right[i].logprobs);
      EXPECT_EQ(late.answer(i).prompt_logprobs, right[i].prompt_logprobs);
    }
  }

  testing::TinyModel model_;
  EngineOptions options_ = tiny_options(model_);
};

// Chunks that sample nothing are enqueued one after another: twenty of them for each prompt here.
TEST_F(LateStream, LongPromptsInChunks) {
  options_.max_num_batched_tokens = 24;
  for (const bool capped : {false, true}) {
    std::vector<Request> requests;
    for (int i = 0; i < 3; ++i) {
      Request r = tiny_request(i * 31, 470 + i, 20);
      if (!capped) r.sampling.kv_budget = kFullKv;
      requests.push_back(r);
    }
    const std::vector<Answer> right = right_answers(requests);
    for (const double progress : {0.0, 0.01, 0.2}) {
      SCOPED_TRACE(progress);
      LateEngine late(options_, progress);
      for (const Request& r : requests) late.submit(r);
      late.finish();
      expect_same(late, right);
      late.expect_in_order();
      EXPECT_GT(late.backend().most_queued(), 40u);
    }
  }
}

// What else the host writes for a step: rows, counts and masks of the sampler, biases, the tokens
// whose log-probabilities are wanted.
TEST_F(LateStream, EveryKindOfSamplingAndScoring) {
  options_.max_num_batched_tokens = 40;
  options_.max_num_seqs = 4;  // so that sampler rows change hands
  options_.async_compression = true;
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request r = tiny_request(i * 13, 30 + i * 11 % 140, 20 + i % 7);
    SamplingParams& p = r.sampling;
    p.logprobs = i % 4;
    if (i % 2 == 0) {
      p.temperature = 0.9;
      p.seed = static_cast<uint64_t>(i);
    }
    if (i % 3 == 0) p.repetition_penalty = 1.3;
    if (i % 3 == 1) p.frequency_penalty = 0.6;
    if (i % 4 == 1) p.allowed_token_ids = {5, 9, 11, 40, 41, 42, 43};
    if (i % 4 == 2) p.logit_bias = {{7 + i, 2.5f}, {9, -100.0f}};
    if (i % 5 == 2) p.prompt_logprobs = 3;
    if (i % 7 == 4) {
      p.min_tokens = 10;
      p.stop_token_ids = {6, 12, 18};
    }
    p.kv_policy = static_cast<KvPolicy>(i % 7);
    requests.push_back(r);
  }
  const std::vector<Answer> right = right_answers(requests);
  for (const bool graphs : {true, false}) {
    for (const double progress : {0.0, 0.05}) {
      SCOPED_TRACE(::testing::Message() << "graphs " << graphs << ", progress " << progress);
      EngineOptions options = options_;
      options.enforce_eager = !graphs;
      LateEngine late(options, progress, 7);
      for (const Request& r : requests) late.submit(r);
      late.finish();
      expect_same(late, right);
      late.expect_in_order();
      EXPECT_EQ(late.backend().num_graph_launches() > 0, graphs);
    }
  }
}

TEST_F(LateStream, PreemptedSwappedAndAbortedWhileWorkIsQueued) {
  options_.num_gpu_blocks_override = 34;
  options_.max_num_batched_tokens = 48;
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    Request r = tiny_request(i % 6, 20 + i * 17 % 150, 50);  // many with common beginnings
    r.sampling.kv_policy = i % 2 == 0 ? KvPolicy::kPeak : KvPolicy::kPaper;
    if (i % 3 == 0) r.sampling.repetition_penalty = 1.2;
    requests.push_back(r);
  }
  const std::vector<Answer> right = right_answers(requests);
  for (const int64_t swap_bytes : {int64_t{0}, int64_t{200} << 10}) {
    for (const double progress : {0.0, 0.03}) {
      EngineOptions options = options_;
      options.swap_space_bytes = swap_bytes;
      LateEngine late(options, progress, 3);
      std::vector<RequestId> ids;
      for (const Request& r : requests) ids.push_back(late.submit(r));
      const RequestId aborted = late.submit(tiny_request(77, 160, 50));
      for (size_t steps = 1; late.step(); ++steps) {
        if (steps == 9) late.engine().abort(aborted);
        if (steps % 3 != 0) continue;
        for (const SequenceId id : late.engine().sequences_for_test(ids[steps / 3 % ids.size()]))
          late.scheduler().force_preempt(id);
      }
      for (size_t i = 0; i < right.size(); ++i) {
        EXPECT_EQ(late.answer(i).tokens, right[i].tokens) << i;
        EXPECT_EQ(late.answer(i).logprobs, right[i].logprobs) << i;
      }
      EXPECT_EQ(late.answer(right.size()).finish, FinishReason::kAbort);
      late.expect_in_order();
      EXPECT_GT(late.engine().stats().preemptions, 5);
      EXPECT_EQ(late.engine().stats().swapped_out_blocks > 0, swap_bytes > 0);
    }
  }
}

// A launch that cannot be made ends the requests; what was queued before it ends first, and the
// engine answers rightly from then on.
TEST_F(LateStream, AStepThatCannotBeLaunchedLeavesAnEngine) {
  options_.max_num_batched_tokens = 24;
  options_.enforce_eager = true;
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(tiny_request(i * 31, 200 + i, 30));
  const std::vector<Answer> right = right_answers(requests);
  for (const int failing_step : {2, 5, 11, 30}) {
    SCOPED_TRACE(failing_step);
    LateEngine late(options_, 0.01);
    for (const Request& r : requests) late.submit(r);
    for (int i = 0; i < failing_step; ++i) ASSERT_TRUE(late.step());
    bool threw = false;
    late.backend().behaviour.before_attention = [&] {
      if (!std::exchange(threw, true)) fail(StatusCode::kInternal, "no such launch");
    };
    late.finish();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(late.answer(i).finish, FinishReason::kError);
      EXPECT_EQ(late.answer(i).error.message(), "no such launch");
      const std::vector<int32_t>& tokens = late.answer(i).tokens;
      ASSERT_LE(tokens.size(), right[i].tokens.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), right[i].tokens.begin()));
    }
    EXPECT_TRUE(late.engine().health().ok());
    late.expect_in_order();
    EXPECT_EQ(late.engine().stats().num_cached_blocks, 0);
    late.clear();
    for (const Request& r : requests) late.submit(r);
    late.finish();
    expect_same(late, right);
    late.expect_in_order();
  }
}

// A fault of the device is noticed by whoever waits, also for a step that samples nothing. No token
// is handed out that was computed after it.
TEST_F(LateStream, AFaultOfTheDeviceEndsTheEngine) {
  options_.max_num_batched_tokens = 24;
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(tiny_request(i * 31, 100 + i, 30));
  const std::vector<Answer> right = right_answers(requests);
  for (const double progress : {0.0, 0.05}) {
    for (const int failing_call : {1, 9, 40, 75}) {
      SCOPED_TRACE(::testing::Message() << "progress " << progress << ", call " << failing_call);
      LateEngine late(options_, progress);
      int calls = 0;
      late.backend().behaviour.during_attention = [&] {
        if (++calls == failing_call) fail(StatusCode::kInternal, "an illegal address");
      };
      for (const Request& r : requests) late.submit(r);
      int steps = 0;
      while (late.engine().step()) ASSERT_LT(++steps, 200);
      const Status health = late.engine().health();
      EXPECT_EQ(health.code(), StatusCode::kUnavailable);
      EXPECT_NE(health.message().find("an illegal address"), std::string::npos);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(late.answer(i).finish, FinishReason::kError);
        const std::vector<int32_t>& tokens = late.answer(i).tokens;
        ASSERT_LE(tokens.size(), right[i].tokens.size());
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), right[i].tokens.begin()));
      }
      EXPECT_FALSE(late.engine().submit(requests[0], [](const RequestOutput&) {}).ok());
      EXPECT_EQ(late.backend().violations(), std::vector<std::string>{});
    }
  }
}

// Memory goes only when what works on it has ended.
TEST_F(LateStream, AnEngineEndsWithWorkUnderWay) {
  options_.max_num_batched_tokens = 24;
  for (const int steps : {1, 4, 20, 45}) {
    std::vector<std::string> violations;
    {
      auto backend = std::make_unique<testing::LateBackend>(1);
      backend->keep_violations(&violations);
      EngineImpl engine(build_engine_parts(options_, std::move(backend)), options_);
      Answer answers[2];
      for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(engine.submit(tiny_request(i, 150, 100), collect_into(answers[i])).ok());
      for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine.step());
    }
    EXPECT_EQ(violations, std::vector<std::string>{}) << steps;
  }
}

}  // namespace
}  // namespace zipage::testing_engine
