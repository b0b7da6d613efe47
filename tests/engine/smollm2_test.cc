// A real model in a real file, SmolLM2-135M-Instruct in Q4_1: transformers as judge, the memory it
// takes, and answers that make sense. script/judges fetches it.
#include <filesystem>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine_fixture.h"
#include "support/judge.h"

namespace zipage::testing_engine {
namespace {

std::string smollm2_path() {
  const char* cache = std::getenv("ZIPAGE_CACHE");
  const char* home = std::getenv("HOME");
  const std::string folder =
      cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache/zipage";
  return folder + "/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
}

class SmolLm2Test : public testing::Test {
 protected:
  void SetUp() override {
    if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
    ASSERT_TRUE(std::filesystem::exists(smollm2_path()))
        << smollm2_path() << " is missing: run script/judges";
  }
  static EngineOptions options() {
    EngineOptions o = exact_options();
    o.model = smollm2_path();
    o.max_model_len = 2048;
    o.kv_cache_memory_bytes = int64_t{128} << 20;
    return o;
  }
  static std::string chat(const Engine& engine, const std::string& question) {
    const boost::json::array messages{{{"role", "user"}, {"content", question}}};
    auto prompt =
        engine.tokenizer().apply_chat_template(boost::json::serialize(messages), ChatOptions());
    if (!prompt.ok()) throw std::runtime_error(prompt.status().message());
    return std::move(prompt).value();
  }
};

TEST_F(SmolLm2Test, LogprobsAndGreedyTokensAreThoseOfTransformers) {
  const auto engine = make_engine(options());
  const std::vector<std::string> questions = {
      "What is the capital of France?", "Write a haiku about the sea.",
      "Explain in two sentences why the sky is blue, for a child of \xC3\xA9ight years."};
  boost::json::array rows;
  for (const std::string& question : questions) {
    Request request = greedy_request(*engine, chat(*engine, question), 40);
    request.sampling.logprobs = request.sampling.prompt_logprobs = 20;
    const boost::json::value prompt = boost::json::value_from(request.prompt_token_ids);
    boost::json::array tokens, listed;
    const auto list = [&](const std::vector<TokenLogprob>& entries) {
      boost::json::array& row = listed.emplace_back(boost::json::array()).as_array();
      for (const TokenLogprob& e : entries)
        row.push_back(boost::json::array{e.token_id, e.logprob});
    };
    const auto take = [&](const RequestOutput& output) {
      for (size_t i = 1; i < output.prompt_logprobs.size(); ++i) list(output.prompt_logprobs[i]);
      for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
        tokens.emplace_back(output.new_token_ids[i]);
        list(output.new_logprobs[i]);
      }
    };
    const auto id = engine->submit(std::move(request), take);
    ASSERT_TRUE(id.ok()) << id.status().message();
    engine->run_until_idle();
    rows.push_back({{"prompt", prompt}, {"tokens", tokens}, {"listed", listed}});
  }
  const test::TempFolder folder;
  folder.write("answers.json", boost::json::serialize(rows));
  ASSERT_EQ(
      test::run_judge("engine/judge_smollm2.py", folder,
                      {smollm2_path(), folder.file("answers.json"), folder.file("verdict.json")}),
      "");
  const std::string text = test::read_file(folder.file("verdict.json"));
  const auto verdict = boost::json::parse(text).as_object();
  EXPECT_EQ(verdict.at("different_tokens").as_int64(), 0) << text;
  EXPECT_GT(verdict.at("tokens").as_int64(), 60) << text;
  EXPECT_LT(verdict.at("max_difference").as_double(), 2e-3) << text;
  EXPECT_LT(verdict.at("relative_difference").as_double(), 1e-4) << text;
}

TEST_F(SmolLm2Test, PeakResidentSizeIsFileAndPlanAndLittleMore) {
  const pid_t child = fork();
  if (child == 0) {
    execl(ZIPAGE_PROGRAM, "zipage", "run", smollm2_path().c_str(), "-p", "The capital of France is",
          "--max-tokens", "64", "--temperature", "0", "--kv-cache-memory", "64MiB", "--log-level",
          "error", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(smollm2_path()));
  EXPECT_LE(usage.ru_maxrss * 1024, file_bytes + (int64_t{64} << 20) + 100'000'000);
}

// Greedy, so that the answers never change; a real model of this size knows these.
TEST_F(SmolLm2Test, AnswersMakeSenseWithAndWithoutACap) {
  for (const int64_t budget : {kFullKv, int64_t{512}}) {
    EngineOptions o = options();
    o.block_size = 64;
    o.compression.kv_budget = budget;
    const auto engine = make_engine(o);
    const Answer capital = answer(
        *engine, {.prompt = chat(*engine, "What is the capital of France?"), .answer = ""}, 40);
    EXPECT_NE(capital.text.find("Paris"), std::string::npos) << budget << ": " << capital.text;
    EXPECT_EQ(capital.finish, FinishReason::kStop) << budget << ": " << capital.text;
    // The cap cuts this one, before the second token of its answer: 704 tokens are eleven blocks.
    std::string question = "Here is a list of numbers to ignore:";
    for (int i = 0; i < 218; ++i) question.append(" ").append(std::to_string(i % 10)).append(",");
    question += "\nWhat is the capital of France? Answer briefly.";
    const Answer after = answer(*engine, {.prompt = chat(*engine, question), .answer = ""}, 40);
    EXPECT_NE(after.text.find("Paris"), std::string::npos) << budget << ": " << after.text;
    EXPECT_EQ(engine->stats().compressions > 0, budget != kFullKv) << budget;
  }
}

}  // namespace
}  // namespace zipage::testing_engine
