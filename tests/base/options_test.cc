#include "zipage/options.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace zipage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(OptionsTest, WordsGoBothWays) {
  for (const KvPolicyTraits& policy : kKvPolicies) {
    const auto parsed = parse_kv_policy(policy.name);
    ASSERT_TRUE(parsed.ok()) << policy.name;
    EXPECT_EQ(parsed.value(), policy.policy);
    EXPECT_STREQ(to_string(policy.policy), policy.name);
  }
  EXPECT_EQ(parse_score_reduce("sum").value(), ScoreReduce::kSum);
  EXPECT_EQ(parse_pooling("always").value(), Pooling::kAlways);
  EXPECT_EQ(parse_redundancy("raw").value(), Redundancy::kRaw);
  EXPECT_EQ(parse_combine("subtract").value(), Combine::kSubtract);
  EXPECT_EQ(parse_scheduling("constrained").value(), Scheduling::kConstrained);
}

// Whose value it is, a flag's or a field's, is the caller's to say.
TEST(OptionsTest, AnUnknownWordIsQuotedWithTheAcceptedOnes) {
  EXPECT_EQ(parse_kv_policy("Peak").status().message(),
            "'Peak' is unknown; expected peak, paper, attention, redundancy, global, recency or "
            "random");
  EXPECT_EQ(parse_pooling("").status().message(), "'' is unknown; expected first, never or always");
  EXPECT_EQ(parse_scheduling("x").status().message(),
            "'x' is unknown; expected hybrid or constrained");
  for (const Status& status :
       {parse_redundancy("flash2").status(), parse_combine("x").status(),
        parse_score_reduce("x").status(), parse_kv_policy("--kv").status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("is unknown; expected "));
  }
}

TEST(OptionsTest, DefaultsDependOnThePolicy) {
  CompressionOptions options;
  auto resolved = options.resolved(256);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->score_weight, 0.3);
  EXPECT_EQ(resolved->protect_newest, 64);
  EXPECT_EQ(resolved->sink_tokens, 0);
  for (const KvPolicy policy : {KvPolicy::kPaper, KvPolicy::kRedundancy, KvPolicy::kGlobal}) {
    options.kv_policy = policy;
    resolved = options.resolved(256);
    ASSERT_TRUE(resolved.ok());
    EXPECT_EQ(resolved->score_weight, 0.2);
    EXPECT_EQ(resolved->protect_newest, 0);
  }
  options.kv_policy = KvPolicy::kRecency;
  EXPECT_EQ(options.resolved(256)->sink_tokens, 4);
  options.sink_tokens = 9;
  options.score_weight = 0.5;
  options.protect_newest = 3;
  resolved = options.resolved(256);
  EXPECT_EQ(resolved->sink_tokens, 9);
  EXPECT_EQ(resolved->score_weight, 0.5);
  EXPECT_EQ(resolved->protect_newest, 3);
}

// Requests have policies of their own: each takes its defaults where the user left them open.
TEST(OptionsTest, EachPolicyOfOneEngineHasItsOwnDefaults) {
  CompressionOptions options;
  options.kv_policy = KvPolicy::kRecency;
  const CompressionOptions peak = options.for_policy(KvPolicy::kPeak);
  EXPECT_EQ(peak.kv_policy, KvPolicy::kPeak);
  EXPECT_EQ(peak.sink_tokens, 0);
  EXPECT_EQ(peak.protect_newest, 64);
  EXPECT_EQ(peak.score_weight, 0.3);
  EXPECT_EQ(options.for_policy(KvPolicy::kRecency).sink_tokens, 4);
  options.protect_newest = 7;
  EXPECT_EQ(options.for_policy(KvPolicy::kPeak).protect_newest, 7);
  EXPECT_EQ(options.for_policy(KvPolicy::kPaper).protect_newest, 7);
}

struct BadOption {
  const char* name;
  std::function<void(CompressionOptions&)> set;
  std::vector<std::string> mentions;
};

class BadOptionTest : public testing::TestWithParam<BadOption> {};

TEST_P(BadOptionTest, NamesTheFlagAndTheValue) {
  CompressionOptions options;
  GetParam().set(options);
  const auto resolved = options.resolved(64);
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.status().code(), StatusCode::kInvalidArgument);
  for (const auto& text : GetParam().mentions) {
    EXPECT_THAT(resolved.status().message(), HasSubstr(text));
  }
}

const double kNan = std::numeric_limits<double>::quiet_NaN();
INSTANTIATE_TEST_SUITE_P(
    All,
    BadOptionTest,
    testing::Values(
        BadOption{"window", [](auto& o) { o.window_size = 24; }, {"--window-size 24", "64"}},
        BadOption{"window0", [](auto& o) { o.window_size = 0; }, {"--window-size 0"}},
        BadOption{
            "budget", [](auto& o) { o.kv_budget = 1000; }, {"--kv-budget 1000", "960", "1024"}},
        BadOption{"small", [](auto& o) { o.kv_budget = 10; }, {"--kv-budget 10", "64"}},
        BadOption{"negative", [](auto& o) { o.kv_budget = -64; }, {"--kv-budget -64"}},
        BadOption{"huge", [](auto& o) { o.kv_budget = int64_t{1} << 40; }, {"too large"}},
        BadOption{
            "newest", [](auto& o) { o.kv_budget = 64; }, {"--protect-newest 64", "protected"}},
        BadOption{"sinks",
                  [](auto& o) { o.kv_budget = 128, o.sink_tokens = 64; },
                  {"--sink-tokens", "64"}},
        BadOption{"sinks-", [](auto& o) { o.sink_tokens = -1; }, {"--sink-tokens -1"}},
        BadOption{"newest-", [](auto& o) { o.protect_newest = -1; }, {"--protect-newest -1"}},
        BadOption{"even", [](auto& o) { o.pooling_width = 4; }, {"--pooling-width 4"}},
        BadOption{"width0", [](auto& o) { o.pooling_width = 0; }, {"--pooling-width 0"}},
        BadOption{"decay", [](auto& o) { o.score_decay = 1.5; }, {"--score-decay 1.5"}},
        BadOption{"nan", [](auto& o) { o.score_decay = kNan; }, {"--score-decay nan"}},
        BadOption{"weight", [](auto& o) { o.score_weight = -0.1; }, {"--score-weight -0.1"}},
        BadOption{
            "tau", [](auto& o) { o.redundancy_temperature = 0; }, {"--redundancy-temperature 0"}},
        BadOption{"p", [](auto& o) { o.similarity_threshold = 2; }, {"--similarity-threshold 2"}},
        BadOption{"half", [](auto& o) { o.attention_half_life = 0; }, {"--attention-half-life 0"}},
        BadOption{"stride", [](auto& o) { o.layer_stride = 0; }, {"--layer-stride 0"}}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      for (char& c : name) {
        if (c == '-') c = 'N';
      }
      return name;
    });

TEST(OptionsTest, FullKvNeedsNoBudget) {
  CompressionOptions options;
  options.kv_budget = kFullKv;
  EXPECT_TRUE(options.resolved(16).ok());
  EXPECT_FALSE(options.resolved(0).ok());
  EXPECT_FALSE(options.resolved(24).ok());  // the window still has to fit a block
}

}  // namespace
}  // namespace zipage
