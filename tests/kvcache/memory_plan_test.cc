#include "kvcache/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "base/error.h"

namespace zipage {
namespace {

using testing::HasSubstr;

KvCacheConfig qwen3_8b() {
  KvCacheConfig config;
  config.dtype = config.query_dtype = DType::kBF16;
  config.num_layers = 36;
  config.num_q_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.block_size = 256;
  config.window_size = 16;
  config.max_blocks_per_seq = 8;
  config.contents = {.queries = true, .scores = true, .positions = true};
  return config;
}

TEST(MemoryPlanTest, BytesOfABlockAndASlot) {
  const KvCacheConfig config = qwen3_8b();
  EXPECT_EQ(kv_block_bytes(config), 256u * 147456u);  // 147,456 bytes a token
  const size_t entries = 36u * 8u * 8u * 256u;
  EXPECT_EQ(kv_slot_bytes(config), 36u * 16u * 32u * 128u * 2u + entries * 8u);
  KvCacheConfig recency = config;
  recency.contents = {.queries = false, .scores = false, .positions = true};
  EXPECT_EQ(kv_slot_bytes(recency), entries * 4u);
}

std::string contents_of(const CompressionOptions& options, KvPolicy policy) {
  const SlotContents c = slot_contents(options.for_policy(policy));
  return std::string(c.queries ? "Q" : "") + (c.scores ? "F" : "") + (c.positions ? "P" : "");
}

TEST(MemoryPlanTest, ContentsFollowThePolicy) {
  const CompressionOptions o;
  EXPECT_EQ(contents_of(o, KvPolicy::kPeak), "QFP");
  EXPECT_EQ(contents_of(o, KvPolicy::kPaper), "QF");
  EXPECT_EQ(contents_of(o, KvPolicy::kAttention), "Q");
  EXPECT_EQ(contents_of(o, KvPolicy::kRedundancy), "Q");
  EXPECT_EQ(contents_of(o, KvPolicy::kGlobal), "QF");
  EXPECT_EQ(contents_of(o, KvPolicy::kRecency), "P");  // of its 4 sinks
  EXPECT_EQ(contents_of(o, KvPolicy::kRandom), "P");
}

TEST(MemoryPlanTest, ContentsFollowTheOptionsThatReadPositions) {
  CompressionOptions o;
  o.derotate = true;
  EXPECT_EQ(contents_of(o, KvPolicy::kPaper), "QFP");
  EXPECT_EQ(contents_of(o, KvPolicy::kRedundancy), "QP");
  EXPECT_EQ(contents_of(o, KvPolicy::kAttention), "Q");  // compares no keys
  o = {};
  o.sink_tokens = 2;
  EXPECT_EQ(contents_of(o, KvPolicy::kAttention), "QP");
  o = {};
  o.protect_prompt = true;
  EXPECT_EQ(contents_of(o, KvPolicy::kGlobal), "QFP");
}

TEST(MemoryPlanTest, ASlotOfSeveralPoliciesHoldsWhatEachNeeds) {
  const CompressionOptions o;
  const SlotContents paper = slot_contents(o.for_policy(KvPolicy::kPaper));
  const SlotContents recency = slot_contents(o.for_policy(KvPolicy::kRecency));
  SlotContents both = paper;
  both |= recency;
  EXPECT_TRUE(both.has(paper) && both.has(recency));
  EXPECT_TRUE(both.has(slot_contents(o.for_policy(KvPolicy::kPeak))));
  EXPECT_FALSE(paper.has(recency));
  EXPECT_FALSE(recency.has(paper));
  EXPECT_TRUE(paper.has(SlotContents()));
}

// Eq. 1 and 2 over random shapes: the plan fits, and no larger M or N_total does.
TEST(MemoryPlanTest, IsTheLargestThatFits) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    KvCacheConfig config;
    config.dtype = pick(0, 1) != 0 ? DType::kBF16 : DType::kF32;
    config.num_layers = pick(1, 12);
    config.num_kv_heads = pick(1, 4);
    config.num_q_heads = config.num_kv_heads * pick(1, 4);
    config.head_dim = 16 * pick(1, 8);
    config.window_size = 4 << pick(0, 2);
    config.block_size = config.window_size * pick(1, 8);
    config.max_blocks_per_seq = pick(2, 9);
    config.contents = {.queries = pick(0, 1) != 0, .scores = pick(0, 1) != 0, .positions = true};
    const size_t one = kv_block_bytes(config) * static_cast<size_t>(config.max_blocks_per_seq) +
                       kv_slot_bytes(config);
    const auto reserved = static_cast<size_t>(pick(0, 1 << 20));
    const size_t memory = reserved + one + one * static_cast<size_t>(pick(0, 3000)) / 100;
    const MemoryPlan plan = plan_memory(config, memory, reserved);
    const auto m = static_cast<size_t>(plan.num_slots);
    const auto n = static_cast<size_t>(plan.num_blocks);
    const size_t available = memory - reserved;
    EXPECT_EQ(plan.total_bytes, n * plan.block_bytes + m * plan.slot_bytes + reserved);
    EXPECT_LE(plan.total_bytes, memory);
    EXPECT_GE(n, m * static_cast<size_t>(config.max_blocks_per_seq));
    EXPECT_GT((m + 1) * one, available);
    EXPECT_GT((n + 1) * plan.block_bytes + m * plan.slot_bytes, available);
    EXPECT_EQ(plan.score_capacity, config.max_blocks_per_seq * config.block_size);
    EXPECT_THROW(plan_memory(config, reserved + one - 1, reserved), Error);
  }
}

TEST(MemoryPlanTest, FullKvHasNoSlots) {
  KvCacheConfig config = qwen3_8b();
  config.max_blocks_per_seq = 0;
  const MemoryPlan plan = plan_memory(config, size_t{10} << 30, 0);
  EXPECT_EQ(plan.num_slots, 0);
  EXPECT_EQ(plan.score_capacity, 0);
  EXPECT_EQ(plan.slot_bytes, 0u);
  EXPECT_EQ(static_cast<size_t>(plan.num_blocks), (size_t{10} << 30) / plan.block_bytes);
  EXPECT_THAT(plan.describe(config, KvPolicy::kPeak), HasSubstr("full KV"));
}

TEST(MemoryPlanTest, NoMoreSlotsThanSequencesAndTheRestAreBlocks) {
  KvCacheConfig config = qwen3_8b();
  const size_t memory = size_t{60} << 30;
  const MemoryPlan free = plan_memory(config, memory, 0);
  config.max_num_seqs = 10;
  const MemoryPlan bounded = plan_memory(config, memory, 0);
  EXPECT_GT(free.num_slots, 10);
  EXPECT_EQ(bounded.num_slots, 10);
  EXPECT_GT(bounded.num_blocks, free.num_blocks);
  EXPECT_LE(bounded.total_bytes, memory);
}

TEST(MemoryPlanTest, AShortModelNeedsFewerBlocksARequest) {
  KvCacheConfig config = qwen3_8b();
  config.max_model_len = 600;  // 3 blocks of the 8
  const size_t three = 3 * kv_block_bytes(config) + kv_slot_bytes(config);
  EXPECT_EQ(plan_memory(config, three, 0).num_slots, 1);
  EXPECT_THROW(plan_memory(config, three - 1, 0), Error);
}

TEST(MemoryPlanTest, TheOverrideIsTakenAsItIs) {
  KvCacheConfig config = qwen3_8b();
  config.num_blocks_override = 1260;
  const MemoryPlan plan = plan_memory(config, 1, 0);
  EXPECT_EQ(plan.num_blocks, 1260);
  EXPECT_EQ(plan.num_slots, 157);
  config.num_blocks_override = 7;
  EXPECT_THROW(plan_memory(config, 1, 0), Error);
}

TEST(MemoryPlanTest, TheErrorNamesNeededAndGivenBytes) {
  const KvCacheConfig config = qwen3_8b();
  const size_t needed = 8 * kv_block_bytes(config) + kv_slot_bytes(config) + 1000;
  try {
    plan_memory(config, 4096, 1000);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(needed)));
    EXPECT_THAT(error.what(), HasSubstr("4096"));
  }
}

TEST(MemoryPlanTest, TheLogLineStatesThePlan) {
  KvCacheConfig config = qwen3_8b();
  config.swap_space_bytes = size_t{1} << 30;
  config.max_num_seqs = 4;
  const std::string line =
      plan_memory(config, size_t{4} << 30, 0).describe(config, KvPolicy::kPeak);
  for (const char* part : {"112 blocks of 256 tokens", "4 slots", "N_max 8", "budget 1792",
                           "policy peak", "scratch 0.0 MiB", "swap"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_THAT(line, testing::Not(HasSubstr("\n")));
}

TEST(MemoryPlanTest, SwapSpaceHoldsBlocksAndTheStateOfSlots) {
  KvCacheConfig config = qwen3_8b();
  config.max_num_seqs = 8;
  for (const size_t swap : {size_t{0}, size_t{1} << 20, size_t{1} << 28, size_t{5} << 30}) {
    config.swap_space_bytes = swap;
    const MemoryPlan plan = plan_memory(config, size_t{40} << 30, 0);
    EXPECT_LE(plan.host_bytes, swap);
    EXPECT_LE(plan.num_host_slots, std::min(plan.num_host_blocks, 8));
    EXPECT_GT(plan.host_bytes + plan.block_bytes + plan.slot_bytes, swap);
    EXPECT_EQ(plan.num_host_slots > 0, plan.num_host_blocks > 0);
  }
}

}  // namespace
}  // namespace zipage
