// Hugging Face transformers as judge: the same greedy tokens and log-probabilities in f32.
#include "support/judge.h"

#include "engine/engine_fixture.h"

namespace zipage::testing_engine {
namespace {

TEST(JudgeTest, TwentyProblemsHaveTheTokensAndLogprobsOfTransformers) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  const auto list = problems(300, 1100, 20);
  ASSERT_EQ(list.size(), 20u);
  const auto engine = make_engine(exact_options());
  const auto result = answers(*engine, list);
  boost::json::array rows;
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(result[i].finish, FinishReason::kStop);
    EXPECT_TRUE(result[i].text.ends_with("\\boxed{" + list[i].answer + "}"));
    rows.push_back({{"prompt", boost::json::value_from(engine->tokenizer().encode(
                                   list[i].prompt, {.add_special_tokens = false}))},
                    {"tokens", boost::json::value_from(result[i].tokens)},
                    {"logprobs", boost::json::value_from(result[i].logprobs)}});
  }
  const test::TempFolder folder;
  folder.write("answers.json", boost::json::serialize(rows));
  ASSERT_EQ(
      test::run_judge("engine/judge_transformers.py", folder,
                      {model_path(), folder.file("answers.json"), folder.file("verdict.json")}),
      "");
  const auto verdict = boost::json::parse(test::read_file(folder.file("verdict.json"))).as_object();
  EXPECT_EQ(verdict.at("different_tokens").as_int64(), 0);
  EXPECT_GT(verdict.at("tokens").as_int64(), 8000);
  EXPECT_LT(verdict.at("max_logprob_difference").as_double(), 2e-3);
}

}  // namespace
}  // namespace zipage::testing_engine
