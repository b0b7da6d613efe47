// The faults of the published implementation (method.md 7) as a caller of the engine would meet
// them, and failures of the device. See the table in docs/testing.md.
#include <thread>

#include "base/error.h"
#include "engine/tiny_engine.h"

namespace zipage::testing_engine {
namespace {

class EngineFaults : public ::testing::Test {
 protected:
  testing::TinyModel model_;
  EngineOptions options_ = tiny_options(model_);
};

void expect_refused(TinyEngine& tiny, const Request& request, const std::string& word) {
  int calls = 0;
  const auto id = tiny.engine().submit(request, [&](const RequestOutput&) { ++calls; });
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(id.status().message().find(word), std::string::npos) << id.status().message();
  EXPECT_EQ(calls, 0);
}

TEST_F(EngineFaults, AnOversizePromptIsRefusedAndTheOthersGoOn) {
  options_.num_gpu_blocks_override = 8;
  options_.max_num_batched_tokens = 24;
  TinyEngine tiny(options_);
  tiny.submit(tiny_request(1, 100, 5));  // four times the token budget
  tiny.step();
  expect_refused(tiny, tiny_request(2, 129, 5), "129 tokens");  // the pool holds 128
  expect_refused(tiny, tiny_request(2, 512, 5), "max_model_len is 512");
  Request uncapped = tiny_request(2, 100, 40);  // its 139 entries never fit
  uncapped.sampling.kv_budget = kFullKv;
  expect_refused(tiny, uncapped, "9 blocks");
  tiny.submit(tiny_request(3, 5, 5));
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).tokens.size(), 5u);
  EXPECT_EQ(tiny.answer(1).tokens.size(), 5u);
  tiny.expect_nothing_held();
}

// 2^39 once failed a CHECK that ended everyone's requests; 32 + 2^36 once became 32 in 32 bits.
TEST_F(EngineFaults, AHugeBudgetIsRefusedAndTheOthersGoOn) {
  TinyEngine tiny(options_);
  tiny.submit(tiny_request(1, 100, 5));
  tiny.step();
  for (const int64_t budget : {int64_t{1} << 39, 32 + (int64_t{1} << 36), int64_t{1} << 62}) {
    Request r = tiny_request(2, 100, 40);
    r.sampling.kv_budget = budget;
    expect_refused(tiny, r, std::to_string(budget));
  }
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).tokens.size(), 5u);
  EXPECT_TRUE(tiny.engine().health().ok());
  tiny.expect_nothing_held();
}

// max_model_len is four times the pool: two such requests, and capped ones beside them.
TEST_F(EngineFaults, AFullCacheWithoutMaxTokensEndsWithThePool) {
  options_.num_gpu_blocks_override = 8;
  TinyEngine tiny(options_);
  Request full = tiny_request(3, 20, 1);
  full.sampling.kv_budget = kFullKv;
  full.sampling.max_tokens.reset();
  Request capped = tiny_request(40, 20, 60);
  tiny.submit(full);
  tiny.submit(capped);
  tiny.submit(full);
  tiny.submit(capped);
  int steps = 0;
  while (tiny.step()) ASSERT_LT(++steps, 5000);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(tiny.answer(i).finish, FinishReason::kLength);
    // 8 blocks of 16 entries hold all but the last token.
    EXPECT_EQ(tiny.answer(i).tokens.size(), 8u * 16u + 1u - 20u);
  }
  EXPECT_EQ(tiny.answer(0).tokens, tiny.answer(2).tokens);
  for (const size_t i : {size_t{1}, size_t{3}}) EXPECT_EQ(tiny.answer(i).tokens.size(), 60u);
  tiny.expect_nothing_held();
}

TEST_F(EngineFaults, APolicyThatTheOptionsDoNotSuitIsRefusedAtSubmit) {
  options_.compression.protect_newest.reset();  // paper: none; peak: 64 of a budget of 32
  options_.compression.kv_policy = KvPolicy::kPaper;
  TinyEngine tiny(options_);
  Request r = tiny_request(1, 60, 20);
  r.sampling.kv_policy = KvPolicy::kPeak;
  expect_refused(tiny, r, "64");
  tiny.submit(tiny_request(1, 60, 20));
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).tokens.size(), 20u);
}

class FailedCompression : public EngineFaults, public ::testing::WithParamInterface<bool> {};

TEST_P(FailedCompression, FailsItsRequestAloneAndHangsNobody) {
  options_.async_compression = GetParam();
  constexpr int kNum = 5;
  std::vector<Answer> calm;
  {
    TinyEngine tiny(options_);
    for (int i = 0; i < kNum; ++i) tiny.submit(tiny_request(i * 17, 40 + i, 60));
    tiny.finish();
    for (size_t i = 0; i < kNum; ++i) calm.push_back(tiny.answer(i));
  }
  TinyEngine tiny(options_);
  tiny.backend().behaviour.fails = [](int64_t job) { return job == 1 || job == 9; };
  for (int i = 0; i < kNum; ++i) tiny.submit(tiny_request(i * 17, 40 + i, 60));
  tiny.finish();
  EXPECT_GT(tiny.backend().num_jobs_started(), 10);
  EXPECT_EQ(tiny.backend().num_compression_streams(), GetParam() ? 1 : 0);
  int num_failed = 0;
  for (size_t i = 0; i < kNum; ++i) {
    const Answer& answer = tiny.answer(i);
    if (answer.finish == FinishReason::kError) {
      ++num_failed;
      EXPECT_EQ(answer.error.code(), StatusCode::kInternal);
      EXPECT_EQ(answer.error.message(), "this compression must fail");
      // What it had said until then was right.
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), calm[i].tokens.begin()));
    } else {
      EXPECT_EQ(answer.tokens, calm[i].tokens);
      EXPECT_EQ(answer.logprobs, calm[i].logprobs);
    }
  }
  EXPECT_EQ(num_failed, 2);
  tiny.expect_nothing_held();
  // The same engine goes on.
  tiny.backend().behaviour.fails = nullptr;
  tiny.clear();
  tiny.submit(tiny_request(0, 40, 60));
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).tokens, calm[0].tokens);
}

INSTANTIATE_TEST_SUITE_P(Modes, FailedCompression, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "async" : "sync";
});

TEST_F(EngineFaults, AStepThatFailsEndsItsRequestsAndLeavesAnEngine) {
  for (const bool late : {false, true}) {
    testing::UnrulyBackend::Behaviour behaviour;
    behaviour.late = late;
    TinyEngine tiny(options_, std::move(behaviour));
    const Request r = tiny_request(4, 40, 30);
    tiny.submit(r);
    tiny.finish();
    const Answer calm = tiny.answer(0);
    tiny.clear();
    tiny.submit(r);
    tiny.submit(tiny_request(9, 30, 30));
    for (int i = 0; i < 5; ++i) tiny.step();
    bool threw = false;
    tiny.backend().behaviour.before_attention = [&] {
      if (!std::exchange(threw, true)) fail(StatusCode::kUnavailable, "the device is gone");
    };
    tiny.finish();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(tiny.answer(i).finish, FinishReason::kError);
      EXPECT_EQ(tiny.answer(i).error.code(), StatusCode::kUnavailable);
    }
    tiny.expect_nothing_held();
    // Nothing of what that step should have stored is taken for a prompt's KV.
    EXPECT_EQ(tiny.stats().num_cached_blocks, 0);
    tiny.clear();
    tiny.submit(r);
    tiny.finish();
    EXPECT_EQ(tiny.answer(0).tokens, calm.tokens);
    EXPECT_EQ(tiny.answer(0).logprobs, calm.logprobs);
  }
}

TEST_F(EngineFaults, ABugOutsideTheDeviceEndsEveryRequestWithAnError) {
  TinyEngine tiny(options_);
  tiny.submit(tiny_request(1, 20, 20));
  auto thrower = tiny.engine().submit(tiny_request(2, 20, 20), [](const RequestOutput& output) {
    if (output.new_token_ids.size() == 1) throw std::runtime_error("a callback's bug");
  });
  ASSERT_TRUE(thrower.ok());
  tiny.engine().run_until_idle();
  EXPECT_EQ(tiny.answer(0).finish, FinishReason::kError);
  EXPECT_NE(tiny.answer(0).error.message().find("a callback's bug"), std::string::npos);
  const auto late = tiny.engine().submit(tiny_request(1, 20, 20), [](const RequestOutput&) {});
  EXPECT_EQ(late.status().code(), StatusCode::kInternal);
  EXPECT_EQ(tiny.engine().health().code(), StatusCode::kInternal);
  EXPECT_EQ(tiny.engine().health().message(), late.status().message());
  EXPECT_FALSE(tiny.engine().step());
  // On a thread of its own nothing else happens either.
  tiny.engine().start();
  tiny.engine().stop();
}

// A step, a compression beside the steps, or one in turn notices it. Nobody waits for ever, and the
// engine says so from then on.
TEST_F(EngineFaults, ALostDeviceEndsTheEngineNotOneRequestAfterAnother) {
  for (const bool late : {false, true}) {
    for (const char* where : {"step", "compression", "compression in turn"}) {
      SCOPED_TRACE(::testing::Message() << where << (late ? ", samples read late" : ""));
      EngineOptions options = options_;
      options.async_compression = where != std::string("compression in turn");
      testing::UnrulyBackend::Behaviour behaviour;
      behaviour.late = late;
      TinyEngine tiny(options, std::move(behaviour));
      for (int i = 0; i < 20; ++i) tiny.submit(tiny_request(i, 40, 60));  // four of them wait
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(tiny.step());
      EXPECT_TRUE(tiny.engine().health().ok());
      auto& bad = tiny.backend().behaviour;
      bad.device_health = Status(StatusCode::kUnavailable, "the GPU fell off the bus");
      if (where == std::string("step")) {
        bad.before_attention = [] { fail(StatusCode::kInternal, "a launch failed"); };
      } else {
        bad.fails = [](int64_t) { return true; };
      }
      int steps = 0;
      while (tiny.engine().step()) ASSERT_LT(++steps, 1000);
      for (size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(tiny.answer(i).finish, FinishReason::kError);
        EXPECT_EQ(tiny.answer(i).error.code(), StatusCode::kUnavailable);
      }
      const Status health = tiny.engine().health();
      EXPECT_EQ(health.code(), StatusCode::kUnavailable);
      EXPECT_NE(health.message().find("the GPU fell off the bus"), std::string::npos);
      EXPECT_NE(health.message().find(where == std::string("step") ? "a launch failed"
                                                                   : "this compression must fail"),
                std::string::npos);
      const auto refused =
          tiny.engine().submit(tiny_request(1, 20, 20), [](const RequestOutput&) {});
      EXPECT_EQ(refused.status().message(), health.message());
      EXPECT_FALSE(tiny.engine().step());
    }
  }
}

TEST_F(EngineFaults, ASwappedSequenceThatIsAbortedGivesItsHostMemoryBack) {
  options_.scheduling_policy = SchedulingPolicy::kPriority;
  options_.swap_space_bytes = 1 << 20;
  options_.max_num_seqs = 2;  // no more host slots than that
  options_.async_compression = false;
  TinyEngine tiny(options_);
  for (int round = 0; round < 8; ++round) {
    const RequestId id = tiny.submit(tiny_request(round, 60, 40));
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(tiny.step());
    for (const SequenceId sequence : tiny.engine().sequences_for_test(id))
      ASSERT_TRUE(tiny.scheduler().force_preempt(sequence)) << "round " << round;
    const RequestId other = tiny.submit(tiny_request(50 + round, 60, 8));
    tiny.engine().abort(id);
    tiny.step();
    tiny.engine().abort(other);
    tiny.finish();
    tiny.expect_nothing_held();
  }
  // And when it is out for longer than that step: seven more sequences than there are host slots.
  for (int round = 0; round < 8; ++round) {
    Request r = tiny_request(round, 60, 40);
    r.priority = 1;
    const RequestId id = tiny.submit(r);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(tiny.step());
    const RequestId a = tiny.submit(tiny_request(90, 20, 30));
    const RequestId b = tiny.submit(tiny_request(80, 20, 30));
    for (const SequenceId sequence : tiny.engine().sequences_for_test(id))
      ASSERT_TRUE(tiny.scheduler().force_preempt(sequence)) << "round " << round;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(tiny.step());
    ASSERT_EQ(tiny.stats().num_swapped, 1);
    for (const RequestId done : {id, a, b}) tiny.engine().abort(done);
    tiny.finish();
    tiny.expect_nothing_held();
  }
  EXPECT_GT(tiny.stats().swapped_out_blocks, 8);
}

// Compression's scratch, host slots, staging: all of it is there before the first request.
TEST_F(EngineFaults, NothingIsAllocatedAfterTheStart) {
  options_.num_gpu_blocks_override = 20;
  options_.swap_space_bytes = 160 << 10;
  TinyEngine tiny(options_);
  const int64_t at_start = tiny.backend().num_allocations();
  EXPECT_GT(at_start, 10);
  std::vector<RequestId> ids;
  for (int i = 0; i < 40; ++i) {
    Request r = tiny_request(i, i % 5 == 0 ? 200 : 20 + i, 60);
    r.sampling.kv_policy = kKvPolicies[static_cast<size_t>(i) % kNumKvPolicies].policy;
    if (i % 3 == 0) r.sampling.repetition_penalty = 1.1;
    ids.push_back(tiny.submit(r));
  }
  for (size_t steps = 0; tiny.step(); ++steps) {
    if (steps % 2 != 0) continue;
    for (const SequenceId sequence : tiny.engine().sequences_for_test(ids[steps / 2 % ids.size()]))
      tiny.scheduler().force_preempt(sequence);
  }
  EXPECT_GT(tiny.stats().swapped_out_blocks, 5);
  EXPECT_GT(tiny.stats().compressions, 60);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tiny.answer(i).tokens.size(), 60u) << i;
  EXPECT_EQ(tiny.backend().num_allocations(), at_start);
  tiny.expect_nothing_held();
}

TEST_F(EngineFaults, OneEosIdIsNotAllThatStops) {
  TinyEngine tiny(options_);
  Request r = tiny_request(5, 20, 40);
  tiny.submit(r);
  tiny.finish();
  const std::vector<int32_t> tokens = tiny.answer(0).tokens;
  // Any id may stop, and the model's length stops when nothing else does.
  const int32_t stop = tokens[5];
  const auto first = std::find(tokens.begin(), tokens.end(), stop);
  tiny.clear();
  r.sampling.stop_token_ids = {0, stop, 1};
  tiny.submit(r);
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).finish, FinishReason::kStop);
  EXPECT_EQ(tiny.answer(0).stop_reason, std::to_string(stop));
  EXPECT_EQ(static_cast<std::ptrdiff_t>(tiny.answer(0).tokens.size()), first - tokens.begin() + 1);
  tiny.clear();
  r.sampling.stop_token_ids.clear();
  r.sampling.max_tokens.reset();
  tiny.submit(r);
  tiny.finish();
  EXPECT_EQ(tiny.answer(0).finish, FinishReason::kLength);
  EXPECT_EQ(tiny.answer(0).tokens.size(), 512u - 20u);
}

// Too many biases fail their request, not the step.
TEST_F(EngineFaults, MoreStopTokensThanTheVocabularyHasAreRefused) {
  TinyEngine tiny(options_);
  Request r = tiny_request(5, 20, 4);
  r.sampling.min_tokens = 2;
  r.sampling.stop_token_ids.assign(testing::TinyModel::kVocab + 1, 7);
  expect_refused(tiny, r, "at most 96");
  r.sampling.stop_token_ids.assign(testing::TinyModel::kVocab, 7);
  for (int i = 0; i < 16; ++i) tiny.submit(r);  // max_num_seqs
  tiny.finish();
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_NE(tiny.answer(i).finish, FinishReason::kError) << tiny.answer(i).error.message();
    EXPECT_GE(tiny.answer(i).tokens.size(), 2u);
  }
}

TEST_F(EngineFaults, TheSeedAloneDecidesWhatIsDrawn) {
  Request r = tiny_request(5, 20, 30);
  r.sampling.temperature = 1;
  r.sampling.seed = 77;
  std::vector<std::vector<int32_t>> drawn;
  for (const int company : {0, 5}) {
    TinyEngine tiny(options_);
    for (int i = 0; i < company; ++i) tiny.submit(tiny_request(i, 10, 10));
    tiny.submit(r);
    tiny.finish();
    drawn.push_back(tiny.answer(static_cast<size_t>(company)).tokens);
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  r.sampling.seed = 78;
  TinyEngine tiny(options_);
  tiny.submit(r);
  tiny.finish();
  EXPECT_NE(tiny.answer(0).tokens, drawn[0]);
}

}  // namespace
}  // namespace zipage::testing_engine
