// What the sampler's rows say of a request, and when a sequence ends.
#include "sampling/request_sampler.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <string>

#include "base/check.h"

namespace zipage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

struct Lists {
  explicit Lists(size_t capacity = 16) : ids(capacity), values(capacity) {
    bias = {ids, values, 0};
  }
  std::vector<int32_t> ids;
  std::vector<float> values;
  BiasList bias;
};

SamplerContext context_of(std::vector<int32_t> eos = {2}) {
  SamplerContext context;
  context.vocab_size = 40;
  context.eos_ids = std::move(eos);
  return context;
}

// Three of the prompt, three of the output.
const std::vector<int32_t> kTokens = {5, 6, 5, 7, 8, 7};

TEST(RequestSampler, RowCarriesTheParams) {
  SamplingParams params;
  params.temperature = 0.5;
  params.top_p = 0.75;
  params.top_k = -1;
  params.min_p = 0.25;
  params.typical_p = 0.5;
  params.presence_penalty = 1;
  params.logprobs = -1;
  const RequestSampler state(params, context_of());
  Lists lists;
  const SampleRow row = state.row(kTokens, 3, 99, 7, lists.bias);
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.top_p, 0.75f);
  EXPECT_EQ(row.top_k, 0);
  EXPECT_EQ(row.min_p, 0.25f);
  EXPECT_EQ(row.typical_p, 0.5f);
  EXPECT_EQ(row.presence_penalty, 1);
  EXPECT_EQ(row.repetition_penalty, 1);
  EXPECT_EQ(row.seed, 99u);
  EXPECT_EQ(row.step, 3u);
  EXPECT_EQ(row.num_logprobs, 40);
  EXPECT_EQ(row.count_slot, 7);
  EXPECT_EQ(row.mask_slot, -1);
  EXPECT_EQ(row.bias_count, 0);
}

TEST(RequestSampler, SmallTemperaturesAreRaised) {
  SamplingParams params;
  Lists lists;
  params.temperature = 1e-5;
  EXPECT_EQ(RequestSampler(params, context_of()).row(kTokens, 3, 99, 0, lists.bias).temperature,
            1e-2f);
  params.temperature = 0;
  EXPECT_EQ(RequestSampler(params, context_of()).row(kTokens, 3, 99, 0, lists.bias).temperature, 0);
}

TEST(RequestSampler, NoPenaltyNoCounts) {
  SamplingParams params;
  EXPECT_FALSE(RequestSampler(params, context_of()).needs_counts());
  for (double SamplingParams::*field :
       {&SamplingParams::presence_penalty, &SamplingParams::frequency_penalty,
        &SamplingParams::repetition_penalty}) {
    SamplingParams one;
    one.*field = 1.5;
    EXPECT_TRUE(RequestSampler(one, context_of()).needs_counts());
  }
}

TEST(RequestSampler, CountsAndMask) {
  SamplingParams params;
  params.allowed_token_ids = std::vector<int32_t>{39, 0, 33, 33};
  const RequestSampler state(params, context_of());
  EXPECT_TRUE(state.needs_mask());
  std::vector<uint32_t> mask(2, 77u), counts(40, 77u);
  state.fill_mask(mask);
  EXPECT_THAT(mask, ElementsAre(1u, 1u << 1 | 1u << 7));
  state.fill_counts(kTokens, 3, counts);
  std::vector<uint32_t> want(40, 0u);
  want[5] = want[6] = 1u << 31;
  want[7] = 2;
  want[8] = 1;
  EXPECT_EQ(counts, want);
  state.fill_counts(kTokens, 2, counts);  // token 5 is in the prompt and in the output
  EXPECT_EQ(counts[5], 1u << 31 | 1u);
}

TEST(RequestSampler, MinTokensForbidsStops) {
  SamplingParams params;
  params.min_tokens = 4;
  params.stop_token_ids = {11, 2};
  params.logit_bias = {{30, 1.5f}};
  const RequestSampler state(params, context_of());
  Lists lists;
  const SampleRow early = state.row(kTokens, 3, 99, 0, lists.bias);
  EXPECT_EQ(early.bias_begin, 0);
  EXPECT_EQ(early.bias_count, 3);
  EXPECT_THAT(std::vector<int32_t>(lists.ids.begin(), lists.ids.begin() + 3),
              ElementsAre(30, 2, 11));
  EXPECT_THAT(std::vector<float>(lists.values.begin(), lists.values.begin() + 3),
              ElementsAre(1.5f, kForbidden, kForbidden));
  const SampleRow late = state.row(kTokens, 2, 99, 0, lists.bias);  // four output tokens
  EXPECT_EQ(late.bias_begin, 3);
  EXPECT_EQ(late.bias_count, 1);
  EXPECT_EQ(lists.bias.count, 4);
  EXPECT_EQ(state.max_bias_entries(), 3);
  EXPECT_FALSE(state.is_stop(2, 3));
  EXPECT_TRUE(state.is_stop(2, 4));
  EXPECT_TRUE(state.is_stop(11, 5));
  EXPECT_FALSE(state.is_stop(12, 5));
}

TEST(RequestSampler, IgnoreEos) {
  SamplingParams params;
  params.ignore_eos = true;
  params.min_tokens = 10;
  params.stop_token_ids = {11};
  const RequestSampler state(params, context_of({2, 3}));
  EXPECT_FALSE(state.is_stop(2, 20));
  EXPECT_TRUE(state.is_stop(11, 20));
  EXPECT_TRUE(state.is_eos(3));
  EXPECT_FALSE(state.is_eos(11));
  Lists lists;
  EXPECT_EQ(state.row(kTokens, 3, 99, 0, lists.bias).bias_count, 1)
      << "an ignored EOS may be sampled";
}

TEST(RequestSampler, BadWordsForbidTheirLastToken) {
  SamplerContext context = context_of();
  context.bad_words = {{20}, {7, 21}, {8, 7, 22}, {5, 7, 23}, {5, 7, 8, 7, 24}, {8, 25}};
  const RequestSampler state(SamplingParams(), context);
  Lists lists;
  const SampleRow row = state.row(kTokens, 3, 99, 0, lists.bias);  // the output: 7 8 7
  ASSERT_EQ(row.bias_count, 3);
  EXPECT_THAT(std::vector<int32_t>(lists.ids.begin(), lists.ids.begin() + 3),
              UnorderedElementsAre(20, 21, 22));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lists.values[i], kForbidden);
  EXPECT_EQ(state.max_bias_entries(), 6);
}

// Restrictions of one request that exclude each other, and what is left of them.
struct Restriction {
  std::vector<int32_t> allowed;  // empty: all
  std::vector<std::vector<int32_t>> bad_words;
  std::map<int32_t, float> logit_bias;
  int64_t min_tokens = 0;
  // The beginning of the refusal; empty: something is left.
  std::string refusal;
};

TEST(RequestSampler, SomeTokenMustBeLeft) {
  const std::map<int32_t, float> all_but_9 = [] {
    std::map<int32_t, float> biases;
    for (int32_t id = 0; id < 40; ++id) biases[id] = kForbidden;
    biases[9] = -100;
    return biases;
  }();
  const std::vector<Restriction> cases = {
      {{5, 6}, {{5}, {6}}, {}, 0, "allowed_token_ids: "},
      {{5, 6}, {{5}, {6, 7}}, {}, 0, ""},
      {{5, 6}, {{5}}, {}, 0, ""},
      {{5, 6}, {}, {{5, kForbidden}, {6, kForbidden}}, 0, "allowed_token_ids: "},
      {{5, 6}, {}, {{5, kForbidden}, {6, -100.0f}}, 0, ""},
      {{2}, {}, {}, 1, "allowed_token_ids: "},  // EOS, held back by min_tokens
      {{2}, {}, {}, 0, ""},
      {{2, 11}, {}, {}, 3, "allowed_token_ids: "},  // with a stop token
      {{2, 11, 12}, {{12}}, {}, 3, "allowed_token_ids: "},
      {{2, 11, 12}, {}, {{12, 3.0f}}, 3, ""},
      {{}, {{9}}, all_but_9, 0, "logit_bias: "},
      {{}, {}, all_but_9, 0, ""},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SamplingParams params;
    if (!cases[i].allowed.empty()) params.allowed_token_ids = cases[i].allowed;
    params.logit_bias = cases[i].logit_bias;
    params.min_tokens = cases[i].min_tokens;
    params.stop_token_ids = {11};
    SamplerContext context = context_of();
    context.bad_words = cases[i].bad_words;
    const Status status = RequestSampler(params, context).check(1000);
    EXPECT_EQ(status.ok(), cases[i].refusal.empty()) << "case " << i << ": " << status.message();
    EXPECT_THAT(status.message(), StartsWith(cases[i].refusal)) << "case " << i;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(RequestSampler, SaysWhyNothingCouldBeSampled) {
  EXPECT_EQ(RequestSampler(SamplingParams(), context_of()).nothing_to_sample(4).code(),
            StatusCode::kInternal);
  SamplingParams params;
  params.allowed_token_ids = std::vector<int32_t>{5};
  SamplerContext context = context_of();
  context.bad_words = {{7, 5}};
  const Status status = RequestSampler(params, context).nothing_to_sample(4);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), StartsWith("allowed_token_ids: "));
  EXPECT_THAT(status.message(), HasSubstr("bad_words"));
  EXPECT_THAT(status.message(), HasSubstr("output token 4"));
}

TEST(RequestSampler, MoreBiasesThanThereIsRoomForAreRefused) {
  SamplingParams params;
  params.logit_bias = {{1, 1.0f}, {2, 1.0f}};
  params.min_tokens = 1;
  params.stop_token_ids = {11};
  SamplerContext context = context_of();
  context.bad_words = {{7, 5}, {6}, {6}};  // one of them twice
  const RequestSampler sampler(params, context);
  EXPECT_EQ(sampler.max_bias_entries(), 2 + 2 + 2);
  EXPECT_TRUE(sampler.check(6).ok());
  EXPECT_THAT(sampler.check(5).message(), StartsWith("logit_bias: 6 entries; at most 5"));
}

TEST(RequestSampler, IdsThatTheModelHasNoLogitForAreLeftOut) {
  SamplingParams params;
  params.min_tokens = 5;
  SamplerContext context = context_of({2, 40, -1});
  context.bad_words = {{40}, {3, 41}, {}, {6}};
  Lists lists;
  const SampleRow row = RequestSampler(params, context).row(kTokens, 3, 99, 0, lists.bias);
  EXPECT_EQ(row.bias_count, 2);
  EXPECT_THAT(std::vector<int32_t>(lists.ids.begin(), lists.ids.begin() + 2), ElementsAre(2, 6));
}

TEST(RequestSampler, FullBiasListIsABug) {
  SamplingParams params;
  params.logit_bias = {{1, 1.0f}, {2, 1.0f}};
  Lists lists(1);
  EXPECT_THROW(RequestSampler(params, context_of()).row(kTokens, 3, 99, 0, lists.bias),
               CheckFailure);
}

}  // namespace
}  // namespace zipage
