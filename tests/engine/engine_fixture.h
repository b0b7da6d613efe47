// Engines over the embedded model, and the answers they give.
#pragma once

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "zipage/engine.h"
#include "zipage/tokenizer.h"

#include "support/source.h"

namespace zipage::testing_engine {

inline std::string model_path() { return test::source_path("models/reasoner-16m"); }

// f32 throughout, so that tokens can be compared with ==. ZIPAGE_TEST_DEVICE=cuda runs the same
// tests on a GPU.
inline EngineOptions exact_options() {
  EngineOptions o;
  o.model = model_path();
  const char* device = std::getenv("ZIPAGE_TEST_DEVICE");
  o.device = device != nullptr ? device : "cpu";
  o.dtype = "float32";
  o.num_threads = 2;
  o.kv_cache_memory_bytes = int64_t{256} << 20;
  o.enable_prefix_caching = false;
  o.seed = 0;
  o.async_compression = false;
  o.compression.kv_budget = kFullKv;
  return o;
}

// Capped so low that problems of a thousand tokens are compressed several times.
inline EngineOptions capped_options(KvPolicy policy = KvPolicy::kPeak) {
  EngineOptions o = exact_options();
  o.block_size = 64;
  o.compression.kv_budget = 256;
  o.compression.kv_policy = policy;
  return o;
}

inline std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
  auto engine = Engine::create(options);
  if (!engine.ok()) throw std::runtime_error(engine.status().message());
  return std::move(engine).value();
}

struct TestProblem {
  std::string prompt, answer;
  int64_t completion_tokens = 0;
};

// Problems whose solutions have between `low` and `high` tokens.
inline std::vector<TestProblem> problems(int64_t low, int64_t high, size_t most) {
  std::ifstream file(test::source_path("bench/problems/reasoner-dev.jsonl"));
  std::vector<TestProblem> list;
  for (std::string line; std::getline(file, line) && list.size() < most;) {
    const auto object = boost::json::parse(line).as_object();
    const int64_t tokens = object.at("completion_tokens").as_int64();
    if (tokens < low || tokens > high) continue;
    list.push_back({std::string(object.at("prompt").as_string()),
                    std::string(object.at("answer").as_string()), tokens});
  }
  return list;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;  // of the tokens, and of the alternatives that were asked for
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string stop_reason;
  Status error;
};

inline Request greedy_request(const Engine& engine, const std::string& prompt, int64_t max_tokens) {
  Request request;
  request.prompt_token_ids = engine.tokenizer().encode(prompt, {.add_special_tokens = false});
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.logprobs = 0;
  return request;
}

inline OutputCallback collect_into(Answer& answer) {
  return [&answer](const RequestOutput& output) {
    for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
      answer.tokens.push_back(output.new_token_ids[i]);
      if (i < output.new_logprobs.size())
        answer.logprobs.push_back(output.new_logprobs[i][0].logprob);
    }
    for (const auto& list : output.prompt_logprobs) {
      for (const TokenLogprob& entry : list) answer.prompt_logprobs.push_back(entry.logprob);
    }
    answer.text += output.new_text;
    if (output.finished()) {
      answer.finish = output.finish_reason;
      answer.stop_reason = output.stop_reason;
      answer.error = output.error;
    }
  };
}

// The greedy answers to all prompts, submitted together.
inline std::vector<Answer> answers(Engine& engine,
                                   const std::vector<TestProblem>& list,
                                   int64_t max_tokens = 4096) {
  std::vector<Answer> result(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    auto id =
        engine.submit(greedy_request(engine, list[i].prompt, max_tokens), collect_into(result[i]));
    if (!id.ok()) throw std::runtime_error(id.status().message());
  }
  engine.run_until_idle();
  return result;
}

inline Answer answer(Engine& engine, const TestProblem& problem, int64_t max_tokens = 4096) {
  return answers(engine, {problem}, max_tokens).front();
}

}  // namespace zipage::testing_engine
