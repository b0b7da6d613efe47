#include "compress/pipeline.h"

#include <gtest/gtest.h>

namespace zipage {
namespace {

std::string stages_of(CompressionOptions options, bool without_history = false) {
  options.kv_budget = 2048;
  return Pipeline(options.resolved(256).value(), without_history).describe();
}

// method.md 3.3.
TEST(PipelineTest, EachPolicyIsAListOfStages) {
  CompressionOptions o;
  EXPECT_EQ(stages_of(o), "history > center > combine > protect");
  EXPECT_EQ(stages_of(o, true), "prompt peak > history > center > combine > protect");
  o.kv_policy = KvPolicy::kPaper;
  EXPECT_EQ(stages_of(o), "attention > global > pooling > lightning > combine > protect");
  o.kv_policy = KvPolicy::kAttention;
  EXPECT_EQ(stages_of(o), "attention > combine > protect");
  o.kv_policy = KvPolicy::kRedundancy;
  EXPECT_EQ(stages_of(o), "attention > pooling > lightning > combine > protect");
  o.kv_policy = KvPolicy::kGlobal;
  EXPECT_EQ(stages_of(o), "attention > global > pooling > combine > protect");
  o.kv_policy = KvPolicy::kRecency;
  EXPECT_EQ(stages_of(o), "recency > protect");
  o.kv_policy = KvPolicy::kRandom;
  EXPECT_EQ(stages_of(o), "random > protect");
}

TEST(PipelineTest, OptionsChooseAmongTheStages) {
  CompressionOptions o;
  o.kv_policy = KvPolicy::kPaper;
  o.pooling = Pooling::kNever;
  o.redundancy = Redundancy::kFlash;
  EXPECT_EQ(stages_of(o), "attention > global > flash > combine > protect");
  o.redundancy = Redundancy::kRaw;
  o.pooling = Pooling::kAlways;
  EXPECT_EQ(stages_of(o), "attention > global > pooling > raw > combine > protect");
}

}  // namespace
}  // namespace zipage
