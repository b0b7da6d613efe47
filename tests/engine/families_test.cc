// Small random models of every family, as folders and as packed GGUF files: the log-probabilities
// and greedy tokens of transformers.
#include <cmath>

#include "engine/engine_fixture.h"
#include "support/judge.h"

namespace zipage::testing_engine {
namespace {

struct Judged {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // [tokens, vocabulary]
};

Judged run(Engine& engine, std::vector<int32_t> prompt, int64_t num_tokens) {
  const auto vocabulary = static_cast<size_t>(engine.info().vocab_size);
  Judged result;
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = num_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.detokenize = false;
  request.sampling.logprobs = -1;  // all of them
  const auto id = engine.submit(std::move(request), [&](const RequestOutput& output) {
    for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
      result.tokens.push_back(output.new_token_ids[i]);
      std::vector<float> row(vocabulary, NAN);
      for (const TokenLogprob& entry : output.new_logprobs[i])
        row[static_cast<size_t>(entry.token_id)] = entry.logprob;
      result.logprobs.insert(result.logprobs.end(), row.begin(), row.end());
    }
  });
  EXPECT_TRUE(id.ok()) << id.status().message();
  engine.run_until_idle();
  return result;
}

TEST(FamiliesTest, LogitsAndGreedyTokensAreThoseOfTransformers) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  const test::TempFolder folder;
  ASSERT_EQ(test::run_judge("engine/judge_families.py", folder), "");
  const auto cases = boost::json::parse(test::read_file(folder.file("cases.json"))).as_array();
  ASSERT_EQ(cases.size(), 36u);
  std::string loaded;
  std::unique_ptr<Engine> engine;
  for (const boost::json::value& item : cases) {
    const std::string name(item.at("model").as_string());
    const auto prompt = boost::json::value_to<std::vector<int32_t>>(item.at("prompt"));
    SCOPED_TRACE(name + ", prompt of " + std::to_string(prompt.size()));
    if (name != loaded) {
      EngineOptions options = exact_options();
      options.model = folder.file(name);
      options.tokenizer = model_path();  // the random models have none
      options.kv_cache_memory_bytes = int64_t{8} << 20;
      engine = make_engine(options);
      loaded = name;
    }
    const auto tokens = boost::json::value_to<std::vector<int32_t>>(item.at("tokens"));
    const auto expected = test::read_values<float>(std::string(item.at("logprobs").as_string()));
    const Judged ours = run(*engine, prompt, static_cast<int64_t>(tokens.size()));
    EXPECT_EQ(ours.tokens, tokens);
    ASSERT_EQ(ours.logprobs.size(), expected.size());
    float largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const float difference = std::fabs(ours.logprobs[i] - expected[i]);
      if (!(difference <= largest)) largest = difference;  // NaN too
    }
    EXPECT_LT(largest, 1e-3f);
  }
}

}  // namespace
}  // namespace zipage::testing_engine
