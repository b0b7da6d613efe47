// Each field out of range is named, with its value and what would be right.
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "zipage/sampling_params.h"

namespace zipage {
namespace {

struct Case {
  const char* field;
  std::function<void(SamplingParams&)> change;
  const char* expected;  // part of the message
};

TEST(SamplingParams, DefaultsAndBordersAreRight) {
  EXPECT_TRUE(SamplingParams().validate(100).ok());
  SamplingParams p;
  p.temperature = 0;
  p.top_p = 1e-9;
  p.top_k = -1;
  p.min_p = 1;
  p.typical_p = 1;
  p.presence_penalty = -2;
  p.frequency_penalty = 2;
  p.repetition_penalty = 1e-3;
  p.max_tokens = std::nullopt;
  p.min_tokens = 1'000'000;
  p.logprobs = -1;
  p.prompt_logprobs = 100;
  p.logit_bias = {{0, -std::numeric_limits<float>::infinity()}, {99, 100.0f}};
  p.allowed_token_ids = std::vector<int32_t>{0, 99};
  p.stop_token_ids = {99};
  p.stop = {"x"};
  p.kv_budget = 0;
  EXPECT_TRUE(p.validate(100).ok()) << p.validate(100).message();
  p.max_tokens = 5;
  p.min_tokens = 5;
  EXPECT_TRUE(p.validate(100).ok());
  p.max_tokens = p.min_tokens = 0;
  EXPECT_TRUE(p.validate(100).ok());
}

TEST(SamplingParams, ListsMayBeAsLongAsTheirLimits) {
  SamplingParams p;
  p.n = kMaxSequencesPerRequest;
  p.stop.assign(kMaxStopStrings, std::string(kMaxStopBytes / kMaxStopStrings, 'a'));
  p.bad_words.assign(kMaxBadWords, std::string(kMaxBadWordBytes / kMaxBadWords, 'a'));
  p.stop_token_ids.assign(100, 3);
  p.allowed_token_ids.emplace(100, 3);
  EXPECT_TRUE(p.validate(100).ok()) << p.validate(100).message();
}

TEST(SamplingParams, NamesTheFieldAndBothValues) {
  const std::vector<Case> cases = {
      {"n 0", [](auto& p) { p.n = 0; }, "1 to 16384"},
      {"n 16385", [](auto& p) { p.n = 16385; }, "1 to 16384"},
      {"temperature -0.5", [](auto& p) { p.temperature = -0.5; }, "at least 0"},
      {"temperature nan", [](auto& p) { p.temperature = NAN; }, "at least 0"},
      {"temperature inf", [](auto& p) { p.temperature = INFINITY; }, "at least 0"},
      {"top_p 0", [](auto& p) { p.top_p = 0; }, "(0, 1]"},
      {"top_p 1.5", [](auto& p) { p.top_p = 1.5; }, "(0, 1]"},
      {"top_k -2", [](auto& p) { p.top_k = -2; }, "at least 1"},
      {"min_p 1.01", [](auto& p) { p.min_p = 1.01; }, "[0, 1]"},
      {"typical_p 0", [](auto& p) { p.typical_p = 0; }, "(0, 1]"},
      {"presence_penalty 2.5", [](auto& p) { p.presence_penalty = 2.5; }, "[-2, 2]"},
      {"frequency_penalty -3", [](auto& p) { p.frequency_penalty = -3; }, "[-2, 2]"},
      {"repetition_penalty 0", [](auto& p) { p.repetition_penalty = 0; }, "above 0"},
      {"max_tokens -1", [](auto& p) { p.max_tokens = -1; }, "at least 1"},
      {"min_tokens -1", [](auto& p) { p.min_tokens = -1; }, "at least 0"},
      {"min_tokens 17", [](auto& p) { p.min_tokens = 17; }, "at most max_tokens (16)"},
      {"logprobs 101", [](auto& p) { p.logprobs = 101; }, "0 to 100"},
      {"prompt_logprobs -2", [](auto& p) { p.prompt_logprobs = -2; }, "0 to 100"},
      {"stop_token_ids 100",
       [](auto& p) {
         p.stop_token_ids = {1, 100};
       },
       "[0, 99]"},
      {"stop_token_ids 101 ids", [](auto& p) { p.stop_token_ids.assign(101, 3); }, "at most 100"},
      {"allowed_token_ids -1", [](auto& p) { p.allowed_token_ids.emplace(1, -1); }, "[0, 99]"},
      {"allowed_token_ids []", [](auto& p) { p.allowed_token_ids.emplace(); }, "at least one"},
      {"allowed_token_ids 101 ids", [](auto& p) { p.allowed_token_ids.emplace(101, 3); },
       "at most 100"},
      {"logit_bias 100",
       [](auto& p) {
         p.logit_bias = {{100, 1.0f}};
       },
       "[0, 99]"},
      {"logit_bias nan of token 3",
       [](auto& p) {
         p.logit_bias = {{3, NAN}};
       },
       "finite"},
      {"logit_bias inf of token 3",
       [](auto& p) {
         p.logit_bias = {{3, INFINITY}};
       },
       "finite"},
      {"stop ''",
       [](auto& p) {
         p.stop = {"a", ""};
       },
       "not empty"},
      {"stop 'a'",
       [](auto& p) {
         p.stop = {"a"};
         p.detokenize = false;
       },
       "detokenize"},
      {"bad_words ''", [](auto& p) { p.bad_words = {""}; }, "not empty"},
      {"bad_words 1025 strings", [](auto& p) { p.bad_words.assign(1025, "a"); }, "at most 1024"},
      {"bad_words 65537 bytes", [](auto& p) { p.bad_words = {std::string(65537, 'a')}; },
       "at most 65536"},
      {"stop 65 strings", [](auto& p) { p.stop.assign(65, "a"); }, "at most 64"},
      {"stop 65537 bytes",
       [](auto& p) {
         p.stop = {std::string(65536, 'a'), "b"};
       },
       "at most 65536"},
      {"spaces_between_special_tokens false",
       [](auto& p) { p.spaces_between_special_tokens = false; }, "true"},
      {"kv_budget -1", [](auto& p) { p.kv_budget = -1; }, "tokens"},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    c.change(params);
    const Status status = params.validate(100);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(status.message(), testing::StartsWith(std::string(c.field) + ":"));
    EXPECT_THAT(status.message(), testing::HasSubstr(c.expected));
  }
}

}  // namespace
}  // namespace zipage
