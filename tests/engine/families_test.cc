// Small random models of every family, as folders and as packed GGUF files: the greedy tokens and
// log-probabilities of transformers, at every position of prompt and answer.
#include <algorithm>
#include <cmath>
#include <set>

#include "engine/engine_fixture.h"
#include "support/judge.h"

namespace zipage::testing_engine {
namespace {

constexpr int32_t kBest = 20;

struct Judged {
  std::vector<int32_t> tokens;
  std::vector<std::vector<TokenLogprob>> rows;  // [prompt - 1 + tokens]; the token, then the best
};

Judged run(Engine& engine, std::vector<int32_t> prompt, int64_t num_tokens) {
  Judged result;
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = num_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.detokenize = false;
  request.sampling.logprobs = request.sampling.prompt_logprobs = kBest;
  const auto id = engine.submit(std::move(request), [&](const RequestOutput& output) {
    for (size_t i = 1; i < output.prompt_logprobs.size(); ++i)
      result.rows.push_back(output.prompt_logprobs[i]);
    for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
      result.tokens.push_back(output.new_token_ids[i]);
      result.rows.push_back(output.new_logprobs[i]);
    }
  });
  EXPECT_TRUE(id.ok()) << id.status().message();
  engine.run_until_idle();
  return result;
}

// How far the listed values are from `expected` [vocabulary], and the list from being its best.
float difference(const std::vector<TokenLogprob>& row, std::vector<float> expected) {
  float largest = 0, worst_listed = INFINITY;
  std::set<int32_t> listed;
  for (size_t i = 0; i < row.size(); ++i) {
    const float theirs = expected.at(static_cast<size_t>(row[i].token_id));
    const float d = std::fabs(row[i].logprob - theirs);
    if (!(d <= largest)) largest = d;  // NaN too
    if (i == 0) continue;
    listed.insert(row[i].token_id);
    worst_listed = std::min(worst_listed, theirs);
  }
  EXPECT_EQ(listed.size(), static_cast<size_t>(kBest));
  std::nth_element(expected.begin(), expected.begin() + kBest - 1, expected.end(),
                   std::greater<>());
  return std::max(largest, expected[kBest - 1] - worst_listed);
}

TEST(FamiliesTest, LogprobsAndGreedyTokensAreThoseOfTransformers) {
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
    const auto vocabulary = static_cast<size_t>(engine->info().vocab_size);
    ASSERT_EQ(ours.rows.size(), prompt.size() - 1 + tokens.size());
    ASSERT_EQ(expected.size(), ours.rows.size() * vocabulary);
    float largest = 0;
    for (size_t i = 0; i < ours.rows.size(); ++i) {
      const float* row = expected.data() + i * vocabulary;
      const float d = difference(ours.rows[i], {row, row + vocabulary});
      if (!(d <= largest)) largest = d;
    }
    EXPECT_LT(largest, 1e-3f);
  }
}

}  // namespace
}  // namespace zipage::testing_engine
