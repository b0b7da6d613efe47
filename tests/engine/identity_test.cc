// What never changes a request's tokens in f32: its company, threads, preemption, the scheduling
// policy; and the cap, as long as the request stays below it.
#include "engine/engine_fixture.h"
#include "engine/engine_impl.h"

namespace zipage::testing_engine {
namespace {

TEST(IdentityTest, ARequestBelowTheTriggerAnswersAsWithFullKv) {
  const auto list = problems(300, 400, 4);
  ASSERT_EQ(list.size(), 4u);
  const auto full = answers(*make_engine(exact_options()), list);
  EngineOptions options = exact_options();
  options.block_size = 64;
  EngineOptions full_blocks = options;
  options.compression.kv_budget = 1024;
  const auto engine = make_engine(options);
  const auto capped = answers(*engine, list);
  EXPECT_EQ(engine->stats().compressions, 0);
  const auto uncapped = answers(*make_engine(full_blocks), list);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(capped[i].tokens, uncapped[i].tokens);
    EXPECT_EQ(capped[i].tokens, full[i].tokens);
  }
}

class CompanyTest : public testing::TestWithParam<std::tuple<Scheduling, KvPolicy>> {};

TEST_P(CompanyTest, ARequestAnswersTheSameAloneAndAmongForty) {
  EngineOptions options = capped_options(std::get<1>(GetParam()));
  options.scheduling = std::get<0>(GetParam());
  const auto list = problems(700, 900, 40);
  ASSERT_GE(list.size(), 12u);
  std::vector<TestProblem> crowd;
  while (crowd.size() < 40) crowd.push_back(list[crowd.size() % list.size()]);
  options.num_threads = 1;
  const auto alone = answer(*make_engine(options), crowd[0]);
  options.num_threads = 2;
  EXPECT_EQ(answer(*make_engine(options), crowd[0]).tokens, alone.tokens);
  const auto engine = make_engine(options);
  const auto together = answers(*engine, crowd);
  EXPECT_GT(engine->stats().compressions, 40);
  EXPECT_EQ(together[0].tokens, alone.tokens);
  EXPECT_EQ(together[0].logprobs, alone.logprobs);
  for (size_t i = list.size(); i < crowd.size(); ++i)
    EXPECT_EQ(together[i].tokens, together[i % list.size()].tokens);
}

TEST_P(CompanyTest, ARequestAnswersTheSameAfterAPreemption) {
  EngineOptions options = capped_options(std::get<1>(GetParam()));
  options.scheduling = std::get<0>(GetParam());
  const auto list = problems(700, 900, 3);
  const auto calm = answers(*make_engine(options), list);
  const auto engine = make_engine(options);
  auto& impl = dynamic_cast<EngineImpl&>(*engine);
  for (const int64_t when : {1, 40, 150, 290}) {  // 256 + 64 tokens trigger the first compression
    std::vector<Answer> result(list.size());
    std::vector<RequestId> ids;
    for (size_t i = 0; i < list.size(); ++i) {
      auto id =
          engine->submit(greedy_request(*engine, list[i].prompt, 4096), collect_into(result[i]));
      ASSERT_TRUE(id.ok());
      ids.push_back(*id);
    }
    const int64_t until = engine->stats().steps + when;
    while (engine->step() && engine->stats().steps < until) {
    }
    const int64_t before = engine->stats().preemptions;
    for (const RequestId id : ids) {
      for (const SequenceId sequence : impl.sequences_for_test(id))
        impl.scheduler_for_test().force_preempt(sequence);
    }
    engine->run_until_idle();
    if (when < 200) {
      EXPECT_GT(engine->stats().preemptions, before) << when;
    }
    for (size_t i = 0; i < list.size(); ++i)
      EXPECT_EQ(result[i].tokens, calm[i].tokens) << when << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies,
                         CompanyTest,
                         testing::Combine(testing::Values(Scheduling::kHybrid,
                                                          Scheduling::kConstrained),
                                          testing::Values(KvPolicy::kPeak, KvPolicy::kPaper)),
                         [](const auto& param_info) {
                           return std::string(to_string(std::get<0>(param_info.param))) + "_" +
                                  to_string(std::get<1>(param_info.param));
                         });

TEST(IdentityTest, ChunkedPrefillDoesNotChangeTheAnswer) {
  EngineOptions options = capped_options();
  const auto list = problems(700, 900, 6);
  const auto whole = answers(*make_engine(options), list);
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 17;
  const auto chunked = answers(*make_engine(options), list);
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(whole[i].tokens, chunked[i].tokens);
}

TEST(IdentityTest, ATightPoolPreemptsAndStillAnswersTheSame) {
  EngineOptions options = exact_options();
  options.block_size = 64;
  const auto list = problems(700, 900, 8);
  const auto roomy = answers(*make_engine(options), list, 1000);
  options.kv_cache_memory_bytes = 40 * 655360;  // blocks of 64 f32 tokens
  const auto engine = make_engine(options);
  const auto tight = answers(*engine, list, 1000);
  EXPECT_GT(engine->stats().preemptions, 0);
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(roomy[i].tokens, tight[i].tokens);
}

}  // namespace
}  // namespace zipage::testing_engine
