// What the engine says of a request's time and of the tokens it computed: figures that can be
// checked against what was sent.
#include <chrono>
#include <thread>

#include "engine/engine_fixture.h"
#include "engine/tiny_engine.h"

namespace zipage::testing_engine {
namespace {

struct Phases {
  double queue = 0, prefill = 0, decode = 0;
  double total() const { return queue + prefill + decode; }
};

// The phases that each sequence's last output reports.
OutputCallback keep_phases(std::vector<Phases>& phases) {
  return [&phases](const RequestOutput& output) {
    phases.at(static_cast<size_t>(output.index)) = {output.queue_seconds, output.prefill_seconds,
                                                    output.decode_seconds};
  };
}

Request plain(int length, int64_t max_tokens) {
  Request request = tiny_request(1, length, max_tokens);
  request.sampling.logprobs.reset();
  return request;
}

TEST(AccountingTest, ThePrefillIsNoPartOfTheQueue) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_batched_tokens = 16;
  static constexpr double kLayerSeconds = 0.004;
  testing::UnrulyBackend::Behaviour behaviour;
  behaviour.before_attention = [] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kLayerSeconds));
  };
  TinyEngine tiny(options, behaviour);
  std::vector<Phases> phases(1);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(tiny.engine().submit(plain(200, 5), keep_phases(phases)).ok());
  tiny.finish();
  const double all =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Two layers in 13 steps of up to 16 tokens, then in 4 of one.
  EXPECT_GE(phases[0].prefill, 2 * 13 * kLayerSeconds);
  EXPECT_GE(phases[0].decode, 2 * 4 * kLayerSeconds);
  EXPECT_LE(phases[0].total(), all);
}

TEST(AccountingTest, WhoWaitsForASeatWaitsInTheQueue) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_seqs = 1;
  TinyEngine tiny(options);
  std::vector<Phases> phases(2);
  Request request = plain(40, 30);
  request.sampling.n = 2;
  ASSERT_TRUE(tiny.engine().submit(request, keep_phases(phases)).ok());
  tiny.finish();
  EXPECT_GE(phases[1].queue, phases[0].total());
}

TEST(AccountingTest, ARequestAbortedInTheQueueHasOnlyWaited) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_seqs = 1;
  TinyEngine tiny(options);
  tiny.submit(plain(40, 30));
  std::vector<Phases> phases(1);
  auto id = tiny.engine().submit(plain(40, 30), keep_phases(phases));
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 5; ++i) tiny.step();
  tiny.engine().abort(*id);
  tiny.finish();
  EXPECT_GT(phases[0].queue, 0);
  EXPECT_EQ(phases[0].prefill, 0);
  EXPECT_EQ(phases[0].decode, 0);
}

// In one chunk and in many, alone and among others, preempted or not.
TEST(AccountingTest, EachPromptTokenIsCountedOnce) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.enable_prefix_caching = false;
  options.max_num_batched_tokens = 32;
  TinyEngine tiny(options);
  Request pair = plain(50, 3);
  pair.sampling.n = 2;
  tiny.submit(pair);
  tiny.submit(plain(1, 5));
  tiny.finish();
  EXPECT_EQ(tiny.stats().prompt_tokens, 2 * 50 + 1);
  EXPECT_EQ(tiny.stats().generation_tokens, 2 * 3 + 5);

  Request full = plain(100, 20);
  full.sampling.kv_budget = kFullKv;
  const RequestId id = tiny.submit(full);
  for (int i = 0; i < 8; ++i) tiny.step();
  ASSERT_TRUE(tiny.scheduler().force_preempt(tiny.engine().sequences_for_test(id).front()));
  tiny.finish();
  EXPECT_EQ(tiny.stats().prompt_tokens, 2 * 50 + 1 + 100);
  EXPECT_GT(tiny.stats().recomputed_tokens, 0);
}

TEST(AccountingTest, TokensOfThePrefixCacheAreHitsAndNotComputed) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.compression.kv_budget = kFullKv;
  TinyEngine tiny(options);
  const int length = 5 * kTinyBlock + 3;
  tiny.submit(plain(length, 2));
  tiny.finish();
  tiny.submit(plain(length, 2));
  tiny.finish();
  const EngineStats s = tiny.stats();
  EXPECT_EQ(s.prefix_cache_hits, 5 * kTinyBlock);
  EXPECT_EQ(s.prompt_tokens + s.prefix_cache_hits, 2 * length);
}

}  // namespace
}  // namespace zipage::testing_engine
