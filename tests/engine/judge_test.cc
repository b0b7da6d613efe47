// Hugging Face transformers as judge: the same greedy tokens and log-probabilities in f32.
#include <cstdlib>
#include <unistd.h>

#include "engine/engine_fixture.h"

namespace zipage::testing_engine {
namespace {

TEST(JudgeTest, TwentyProblemsHaveTheTokensAndLogprobsOfTransformers) {
  if (const char* judges = std::getenv("ZIPAGE_JUDGES");
      judges != nullptr && std::string(judges) == "off") {
    GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  }
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
  const std::string folder = testing::TempDir() + std::to_string(getpid()) + "_";
  std::ofstream(folder + "zipage_answers.json") << boost::json::serialize(rows);
  const char* python = std::getenv("ZIPAGE_PYTHON");
  const std::string command = std::string(python != nullptr ? python : "python3") + " " +
                              ZIPAGE_SOURCE_DIR + "/tests/engine/judge_transformers.py " +
                              model_path() + " " + folder + "zipage_answers.json " + folder +
                              "zipage_verdict.json";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream file(folder + "zipage_verdict.json");
  const auto verdict =
      boost::json::parse(std::string(std::istreambuf_iterator<char>(file), {})).as_object();
  EXPECT_EQ(verdict.at("different_tokens").as_int64(), 0);
  EXPECT_GT(verdict.at("tokens").as_int64(), 8000);
  EXPECT_LT(verdict.at("max_logprob_difference").as_double(), 2e-3);
}

}  // namespace
}  // namespace zipage::testing_engine
