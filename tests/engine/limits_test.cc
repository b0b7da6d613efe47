// What one request may not do to the others: ask for more than the sampler's tables hold.
#include "engine/engine_fixture.h"

namespace zipage::testing_engine {
namespace {

Request biased_request(const Engine& engine, int32_t n) {
  Request request = greedy_request(engine, "mul 2*3", 2);
  request.sampling.n = n;
  for (int32_t id = 0; id < engine.info().vocab_size; ++id) request.sampling.logit_bias[id] = 0.5f;
  return request;
}

TEST(LimitsTest, EverySequenceOfAFullBatchMayBiasTheWholeVocabulary) {
  const auto engine = make_engine(exact_options());
  ASSERT_GT(256 * engine->info().vocab_size, 1 << 16);
  int finished = 0;
  for (int i = 0; i < 2; ++i) {
    const auto id = engine->submit(biased_request(*engine, 128), [&](const RequestOutput& output) {
      EXPECT_TRUE(output.error.ok()) << output.error.message();
      finished += output.finished() ? 1 : 0;
    });
    ASSERT_TRUE(id.ok()) << id.status().message();
  }
  engine->run_until_idle();
  EXPECT_EQ(finished, 256);
}

TEST(LimitsTest, MoreBiasesThanARowHoldsAreRefusedByName) {
  const auto engine = make_engine(exact_options());
  Request request = biased_request(*engine, 1);
  for (int i = 0; i < 1024; ++i) request.sampling.bad_words.push_back(std::to_string(i) + "w");
  const auto id = engine->submit(std::move(request), [](const RequestOutput&) {});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(id.status().message().find("logit_bias: "), 0u) << id.status().message();
}

}  // namespace
}  // namespace zipage::testing_engine
