// Requests whose parameters exclude each other, logits that hold nothing, and what a queue of
// requests may cost.
#include <malloc.h>

#include "engine/engine_fixture.h"
#include "engine/tiny_engine.h"

namespace zipage::testing_engine {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The refusal of a request; an empty text when the engine takes it.
std::string refusal(Engine& engine, Request request) {
  auto id = engine.submit(std::move(request), [](const RequestOutput&) {});
  if (id.ok()) {
    engine.run_until_idle();
    return "";
  }
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument) << id.status().message();
  return id.status().message();
}

Request allowing(const Engine& engine, std::vector<int32_t> ids) {
  Request request = greedy_request(engine, "mul 12*34", 4);
  request.sampling.allowed_token_ids = std::move(ids);
  return request;
}

TEST(SamplingLimitsTest, ParametersThatExcludeEachOtherAreRefused) {
  const auto engine = make_engine(exact_options());
  const auto begins = [](const std::string& text, const char* beginning) {
    EXPECT_EQ(text.find(beginning), 0u) << "'" << text << "'";
  };
  Request words = allowing(*engine, {'1', '2'});
  words.sampling.bad_words = {"1", " 2"};
  begins(refusal(*engine, words), "allowed_token_ids: ");
  words.sampling.bad_words = {"1", "22"};
  EXPECT_EQ(refusal(*engine, words), "");

  begins(refusal(*engine, allowing(*engine, {})), "allowed_token_ids []: ");

  Request stops = allowing(*engine, {'1', '2'});
  stops.sampling.stop_token_ids = {'1', '2'};
  EXPECT_EQ(refusal(*engine, stops), "");
  stops.sampling.min_tokens = 1;
  begins(refusal(*engine, stops), "allowed_token_ids: ");

  Request biases = greedy_request(*engine, "mul", 4);
  for (int32_t id = 0; id < engine->info().vocab_size; ++id)
    biases.sampling.logit_bias[id] = kForbidden;
  begins(refusal(*engine, biases), "logit_bias: ");
  biases.sampling.logit_bias['7'] = -100;
  EXPECT_EQ(refusal(*engine, biases), "");
}

// What cannot be known at submit ends the sequence, and nobody else's.
TEST(SamplingLimitsTest, WhereNoTokenIsLeftTheSequenceEndsWithAnError) {
  const auto engine = make_engine(exact_options());
  const auto list = problems(0, 100000, 1);
  ASSERT_EQ(list.size(), 1u);
  const Answer alone = answer(*engine, list[0], 40);
  for (const double temperature : {0.0, 1.0}) {
    Request request = allowing(*engine, {'1', '2'});
    request.sampling.max_tokens = 8;
    request.sampling.temperature = temperature;
    request.sampling.bad_words = {"11", "12", "21", "22"};
    Answer stuck, other;
    ASSERT_TRUE(engine->submit(request, collect_into(stuck)).ok());
    ASSERT_TRUE(
        engine->submit(greedy_request(*engine, list[0].prompt, 40), collect_into(other)).ok());
    engine->run_until_idle();
    EXPECT_EQ(stuck.tokens.size(), 1u);
    EXPECT_EQ(stuck.finish, FinishReason::kError);
    EXPECT_EQ(stuck.error.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(stuck.error.message().find("bad_words"), std::string::npos) << stuck.error.message();
    EXPECT_EQ(other.tokens, alone.tokens);
  }
}

// A model that computes nothing but NaN is not taken for one that says token 0; on a device that
// runs ahead the step after has begun with that token by then.
TEST(SamplingLimitsTest, LogitsWithoutANumberEndTheSequence) {
  const testing::TinyModel model;
  for (const bool late : {false, true}) {
    for (const float logit : {std::numeric_limits<float>::quiet_NaN(), kForbidden}) {
      testing::UnrulyBackend::Behaviour behaviour;
      behaviour.late = late;
      int step = 0;
      behaviour.before_sample = [&](const SampleArgs& args) {
        if (++step != 4) return;
        std::fill_n(const_cast<float*>(args.logits), args.vocab, logit);  // of the first row
      };
      TinyEngine tiny(tiny_options(model), behaviour);
      tiny.submit(tiny_request(1, 20, 10));
      tiny.submit(tiny_request(2, 20, 10));
      tiny.finish();
      EXPECT_EQ(tiny.answer(0).finish, FinishReason::kError);
      EXPECT_EQ(tiny.answer(0).error.code(), StatusCode::kInternal);
      EXPECT_EQ(tiny.answer(0).tokens.size(), 3u);
      EXPECT_EQ(tiny.answer(1).finish, FinishReason::kLength);
      EXPECT_EQ(tiny.answer(1).tokens.size(), 10u);
      tiny.expect_nothing_held();
    }
  }
}

TEST(SamplingLimitsTest, TheQueueCountsSequences) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_queued_requests = 3;
  TinyEngine tiny(options);
  Request request = tiny_request(1, 10, 5);
  request.sampling.n = 2;
  tiny.submit(request);
  const auto full = tiny.engine().submit(request, [](const RequestOutput&) {});
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.status().code(), StatusCode::kResourceExhausted);
  tiny.submit(tiny_request(2, 10, 5));
  request.sampling.n = 4;  // never
  EXPECT_EQ(refusal(tiny.engine(), request).find("n: "), 0u);
  tiny.finish();
  request.sampling.n = 3;
  tiny.submit(request);
  EXPECT_EQ(tiny.stats().num_waiting, 0) << "of the last step";
  tiny.finish();
  tiny.expect_nothing_held();
}

// Sequences share their prompt and parameters, and take what they need when they run.
TEST(SamplingLimitsTest, QueuedSequencesCostLittle) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_seqs = 4;
  TinyEngine tiny(options);
  Request request = tiny_request(1, 400, 100);
  request.sampling.n = 4000;
  request.sampling.logprobs.reset();
  request.sampling.prompt_logprobs = 20;
  request.sampling.stop_token_ids.assign(96, 90);
  request.sampling.allowed_token_ids.emplace();
  for (int32_t id = 3; id < 90; ++id) request.sampling.allowed_token_ids->push_back(id);
  const auto before = static_cast<int64_t>(mallinfo2().uordblks);
  auto id = tiny.engine().submit(request, [](const RequestOutput&) {});
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(tiny.engine().step());
  EXPECT_GE(tiny.stats().num_waiting, 3996);
  EXPECT_LT(static_cast<int64_t>(mallinfo2().uordblks) - before, 4000 * 1000 + (2 << 20));
  tiny.engine().abort(*id);
  tiny.finish();
  tiny.expect_nothing_held();
}

TEST(SamplingLimitsTest, APriorityNeedsItsPolicy) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_seqs = 1;
  Request urgent = tiny_request(5, 10, 3);
  urgent.priority = -1;
  {
    TinyEngine tiny(options);
    const std::string text = refusal(tiny.engine(), urgent);
    EXPECT_EQ(text.find("priority: "), 0u) << text;
    EXPECT_EQ(text.find("--"), std::string::npos) << "no flag in an API error: " << text;
  }
  options.scheduling_policy = SchedulingPolicy::kPriority;
  TinyEngine tiny(options);
  std::vector<int> ended;
  for (int i = 0; i < 3; ++i) {
    const Request request = i == 2 ? urgent : tiny_request(i, 10, 3);
    ASSERT_TRUE(tiny.engine()
                    .submit(request,
                            [&ended, i](const RequestOutput& output) {
                              if (output.finished()) ended.push_back(i);
                            })
                    .ok());
  }
  tiny.finish();
  EXPECT_EQ(ended, (std::vector<int>{2, 0, 1}));
}

std::vector<int32_t> drawn(const EngineOptions& options) {
  TinyEngine tiny(options);
  Request request = tiny_request(5, 20, 40);
  request.sampling.temperature = 1.5;
  tiny.submit(request);
  tiny.finish();
  return tiny.answer(0).tokens;
}

TEST(SamplingLimitsTest, WithoutASeedEveryEngineDrawsItsOwn) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.seed = 7;
  EXPECT_EQ(drawn(options), drawn(options));
  options.seed.reset();
  std::vector<std::string> lines;
  options.log = [&](const std::string&, const std::string& line) {
    if (line.find("seed: ") == 0) lines.push_back(line);
  };
  const std::vector<int32_t> one = drawn(options);
  EXPECT_NE(one, drawn(options));
  ASSERT_EQ(lines.size(), 2u);
  // The log says how to repeat them.
  options.seed = std::stoull(lines[0].substr(6));
  EXPECT_EQ(one, drawn(options));
}

TEST(SamplingLimitsTest, APromptAloneMayFillTheContext) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  for (const int64_t budget : {kFullKv, int64_t{2 * kTinyBlock}}) {
    options.compression.kv_budget = budget;
    for (const bool late : {false, true}) {
      testing::UnrulyBackend::Behaviour behaviour;
      behaviour.late = late;
      TinyEngine tiny(options, behaviour);
      for (const int length : {1, 16, 511, 512}) {
        Request request = tiny_request(3, length, 0);
        request.sampling.prompt_logprobs = 0;
        size_t scored = 0;
        int outputs = 0;
        ASSERT_TRUE(tiny.engine()
                        .submit(request,
                                [&](const RequestOutput& output) {
                                  ++outputs;
                                  scored = output.prompt_logprobs.size();
                                  EXPECT_TRUE(output.new_token_ids.empty());
                                  EXPECT_TRUE(output.new_logprobs.empty());
                                  EXPECT_EQ(output.finish_reason, FinishReason::kLength);
                                })
                        .ok());
        tiny.finish();
        EXPECT_EQ(outputs, 1) << length;
        EXPECT_EQ(scored, static_cast<size_t>(length));
      }
      EXPECT_EQ(tiny.stats().generation_tokens, 0);
      EXPECT_EQ(tiny.stats().prompt_tokens, 1 + 16 + 511 + 512);
      tiny.expect_nothing_held();
      EXPECT_EQ(refusal(tiny.engine(), tiny_request(3, 513, 0)).find("prompt: 513 "), 0u);
      EXPECT_EQ(refusal(tiny.engine(), tiny_request(3, 512, 1)).find("prompt: 512 "), 0u);
      EXPECT_EQ(refusal(tiny.engine(), tiny_request(3, 511, 9)), "");
    }
  }
}

}  // namespace
}  // namespace zipage::testing_engine
