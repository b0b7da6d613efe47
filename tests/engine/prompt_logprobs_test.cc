// Log-probabilities of prompts: transformers' values; the same bits for any chunk, slice, company
// and preemption; never lost to the prefix cache.
#include "engine/engine_fixture.h"
#include "engine/engine_impl.h"
#include "engine/tiny_engine.h"
#include "support/judge.h"

namespace zipage::testing_engine {
namespace {

using Scores = std::vector<std::vector<TokenLogprob>>;

bool same(const Scores& a, const Scores& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t k = 0; k < a[i].size(); ++k) {
      const TokenLogprob &x = a[i][k], &y = b[i][k];
      if (x.token_id != y.token_id || x.logprob != y.logprob || x.rank != y.rank) return false;
    }
  }
  return true;
}

// The prompts of the problems, one after the other, cut to `length` tokens.
std::vector<int32_t> long_prompt(const Engine& engine, size_t length, size_t skip = 0) {
  std::string text;
  const auto list = problems(0, 100000, 40);
  for (size_t i = skip; i < list.size(); ++i) text += list[i].prompt;
  auto ids = engine.tokenizer().encode(text, {.add_special_tokens = false});
  EXPECT_GE(ids.size(), length);
  ids.resize(std::min(ids.size(), length));
  return ids;
}

struct Scored {
  std::vector<Scores> by_index;  // what came with each output of an index, empty ones too
  std::vector<int32_t> tokens;   // of index 0
  int64_t num_cached_tokens = -1;
  Status error;
};

Request scoring(std::vector<int32_t> prompt,
                std::optional<int32_t> wanted,
                int64_t max_tokens = 1) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.prompt_logprobs = wanted;
  return request;
}

RequestId start(Engine& engine, Request request, Scored& into) {
  into.by_index.resize(static_cast<size_t>(request.sampling.n));
  auto id = engine.submit(std::move(request), [&into](const RequestOutput& output) {
    Scores& scores = into.by_index[static_cast<size_t>(output.index)];
    if (!output.prompt_logprobs.empty()) {
      EXPECT_TRUE(scores.empty()) << "they came twice";
      scores = output.prompt_logprobs;
    }
    if (output.index == 0) {
      into.tokens.insert(into.tokens.end(), output.new_token_ids.begin(),
                         output.new_token_ids.end());
    }
    into.num_cached_tokens = output.num_cached_tokens;
    into.error = output.error;
  });
  if (!id.ok()) throw std::runtime_error(id.status().message());
  return *id;
}

Scored score(Engine& engine, Request request) {
  Scored scored;
  start(engine, std::move(request), scored);
  engine.run_until_idle();
  EXPECT_TRUE(scored.error.ok()) << scored.error.message();
  return scored;
}

TEST(PromptLogprobsTest, AreThoseOfTransformers) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  EngineOptions options = exact_options();
  options.max_num_seqs = 7;  // slices of 7 rows
  options.max_num_batched_tokens = 100;
  const auto engine = make_engine(options);
  boost::json::array rows;
  for (const int32_t wanted : {0, 1, 20}) {
    const auto prompt = long_prompt(*engine, 333, static_cast<size_t>(wanted));
    const Scores scores = score(*engine, scoring(prompt, wanted)).by_index[0];
    ASSERT_EQ(scores.size(), prompt.size());
    boost::json::array positions;
    for (const auto& list : scores) {
      boost::json::array position;
      for (const TokenLogprob& token : list)
        position.push_back({token.token_id, token.logprob, token.rank});
      positions.push_back(std::move(position));
    }
    rows.push_back({{"prompt", boost::json::value_from(prompt)},
                    {"wanted", wanted},
                    {"scores", std::move(positions)}});
  }
  const test::TempFolder folder;
  std::ofstream(folder.file("scores.json")) << boost::json::serialize(rows);
  std::ofstream(folder.file("model.txt")) << model_path();
  EXPECT_EQ(test::run_judge("engine/judge_prompt_logprobs.py", folder), "");
}

TEST(PromptLogprobsTest, ChunksAndSlicesDoNotChangeABit) {
  EngineOptions options = exact_options();
  const auto whole_engine = make_engine(options);
  const auto prompt = long_prompt(*whole_engine, 500);
  const Scored whole = score(*whole_engine, scoring(prompt, 3, 8));
  ASSERT_EQ(whole.by_index[0].size(), prompt.size());
  EXPECT_TRUE(whole.by_index[0][0].empty());
  for (size_t i = 1; i < prompt.size(); ++i) {
    ASSERT_EQ(whole.by_index[0][i].size(), 4u);
    ASSERT_EQ(whole.by_index[0][i][0].token_id, prompt[i]);
  }
  for (const int32_t chunk : {1, 17, 64, 499}) {
    options.max_num_batched_tokens = chunk;
    options.max_num_seqs = std::min(chunk, 16);
    const auto engine = make_engine(options);
    const Scored chunked = score(*engine, scoring(prompt, 3, 8));
    EXPECT_TRUE(same(chunked.by_index[0], whole.by_index[0])) << "chunks of " << chunk;
    EXPECT_EQ(chunked.tokens, whole.tokens);
  }
}

// Among others with and without them, in a capped cache whose prompts outgrow the budget.
TEST(PromptLogprobsTest, CompanyAndTheCapDoNotChangeABit) {
  EngineOptions options = capped_options();
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 96;
  const auto engine = make_engine(options);
  const auto full = make_engine(exact_options());
  std::vector<Scored> alone, together(6);
  for (size_t i = 0; i < together.size(); ++i) {
    const auto prompt = long_prompt(*engine, 100 + 130 * i, i);
    const auto wanted = static_cast<int32_t>(4 * i);
    alone.push_back(score(*full, scoring(prompt, wanted)));
    start(*engine, scoring(prompt, i % 3 == 1 ? std::nullopt : std::optional(wanted), 70),
          together[i]);
  }
  engine->run_until_idle();
  EXPECT_GT(engine->stats().compressions, 3);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_TRUE(together[i].error.ok());
    if (i % 3 == 1) {
      EXPECT_TRUE(together[i].by_index[0].empty());
    } else {
      EXPECT_TRUE(same(together[i].by_index[0], alone[i].by_index[0])) << "request " << i;
    }
  }
}

TEST(PromptLogprobsTest, APreemptedPromptKeepsWhatItHas) {
  EngineOptions options = exact_options();
  options.block_size = 64;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 50;
  const auto engine = make_engine(options);
  const auto prompt = long_prompt(*engine, 420);
  const Scored calm = score(*engine, scoring(prompt, 2, 12));
  for (const int64_t swap : {0, 64}) {
    options.swap_space_bytes = swap << 20;
    const auto other = make_engine(options);
    auto& shaken = dynamic_cast<EngineImpl&>(*other);
    Scored scored;
    const RequestId id = start(*other, scoring(prompt, 2, 12), scored);
    for (const int64_t when : {2, 3, 7, 12}) {  // the last in the middle of decoding
      while (other->stats().steps < when) ASSERT_TRUE(other->step());
      for (const SequenceId sequence : shaken.sequences_for_test(id))
        shaken.scheduler_for_test().force_preempt(sequence);
    }
    other->run_until_idle();
    EXPECT_GE(other->stats().preemptions, 3);
    EXPECT_TRUE(same(scored.by_index[0], calm.by_index[0])) << "swap " << swap;
    EXPECT_EQ(scored.tokens, calm.tokens);
  }
}

// A device's steps are read one step later; requests come, leave and are preempted meanwhile.
TEST(PromptLogprobsTest, StepsThatAreReadLateGiveTheSame) {
  const testing::TinyModel model;
  EngineOptions options = tiny_options(model);
  options.max_num_batched_tokens = 24;
  options.max_num_seqs = 5;
  const std::vector<int> lengths = {1, 2, 24, 25, 61, 130, 200};
  std::vector<std::vector<Scored>> runs;
  for (const bool late : {false, true}) {
    testing::UnrulyBackend::Behaviour behaviour;
    behaviour.late = late;
    TinyEngine tiny(options, behaviour);
    std::vector<Scored>& all = runs.emplace_back(lengths.size() + 1);
    for (size_t i = 0; i < lengths.size(); ++i) {
      Request r = tiny_request(static_cast<int>(i), lengths[i], 40);
      r.sampling.prompt_logprobs = static_cast<int32_t>(3 * i);
      start(tiny.engine(), r, all[i]);
    }
    Request leaves = tiny_request(9, 150, 40);
    leaves.sampling.prompt_logprobs = 2;
    const RequestId gone = start(tiny.engine(), leaves, all.back());
    bool more = true;
    for (int step = 0; more; ++step) {
      more = tiny.step();
      if (step == 14) tiny.engine().abort(gone);
      if (step % 5 != 4) continue;
      for (const SequenceId id : tiny.engine().sequences_for_test(1 + step / 5 % lengths.size()))
        tiny.scheduler().force_preempt(id);
    }
    EXPECT_GT(tiny.stats().preemptions, 3) << late;
    tiny.expect_nothing_held();
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    ASSERT_EQ(runs[0][i].by_index[0].size(), static_cast<size_t>(lengths[i]));
    EXPECT_TRUE(same(runs[0][i].by_index[0], runs[1][i].by_index[0])) << lengths[i];
    EXPECT_EQ(runs[0][i].tokens, runs[1][i].tokens);
    TinyEngine alone(options);
    Request r = tiny_request(static_cast<int>(i), lengths[i], 40);
    r.sampling.prompt_logprobs = static_cast<int32_t>(3 * i);
    EXPECT_TRUE(same(score(alone.engine(), r).by_index[0], runs[0][i].by_index[0]));
  }
}

TEST(PromptLogprobsTest, RowsThatAreKnownAreNotComputedAgain) {
  EngineSequence sequence;
  sequence.num_prompt_tokens = 10;
  PlannedRow row;
  row.position = 0;
  row.num_tokens = 6;
  EXPECT_EQ(scored_range(row, sequence).count, 0) << "not asked for";
  sequence.scores = std::make_unique<PromptScores>();
  EXPECT_EQ(scored_range(row, sequence).count, 6);
  sequence.scores->num_launched = 4;
  EXPECT_EQ(scored_range(row, sequence).first, 4);
  EXPECT_EQ(scored_range(row, sequence).count, 2);
  row.num_tokens = 3;
  EXPECT_EQ(scored_range(row, sequence).count, 0);
  row.num_tokens = 12;  // the last prompt token and those behind it say nothing about the prompt
  EXPECT_EQ(scored_range(row, sequence).first, 4);
  EXPECT_EQ(scored_range(row, sequence).count, 5);
}

TEST(PromptLogprobsTest, ThePrefixCacheDoesNotHideThem) {
  EngineOptions options = exact_options();
  options.block_size = 64;
  options.enable_prefix_caching = true;
  const auto engine = make_engine(options);
  const auto prompt = long_prompt(*engine, 400);
  const Scored first = score(*engine, scoring(prompt, std::nullopt, 4));
  const Scored scored = score(*engine, scoring(prompt, 1, 4));
  EXPECT_EQ(scored.num_cached_tokens, 0);
  ASSERT_EQ(scored.by_index[0].size(), prompt.size());
  const Scored again = score(*engine, scoring(prompt, std::nullopt, 4));
  EXPECT_EQ(again.num_cached_tokens, 384);
  EXPECT_EQ(first.tokens, scored.tokens);
  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_TRUE(same(scored.by_index[0], score(*engine, scoring(prompt, 1, 4)).by_index[0]));
  // What it computed is shared as ever.
  const auto fresh = make_engine(options);
  score(*fresh, scoring(prompt, 1, 4));
  EXPECT_EQ(score(*fresh, scoring(prompt, std::nullopt, 4)).num_cached_tokens, 384);
}

TEST(PromptLogprobsTest, OneOfTheAnswersCarriesThem) {
  const auto engine = make_engine(exact_options());
  const auto prompt = long_prompt(*engine, 90);
  Request request = scoring(prompt, 2, 3);
  request.sampling.n = 3;
  const Scored scored = score(*engine, std::move(request));
  EXPECT_EQ(scored.by_index[0].size(), prompt.size());
  EXPECT_TRUE(scored.by_index[1].empty() && scored.by_index[2].empty());
  const Scored shortest = score(*engine, scoring({prompt[0]}, 2));
  ASSERT_EQ(shortest.by_index[0].size(), 1u);
  EXPECT_TRUE(shortest.by_index[0][0].empty());
}

TEST(PromptLogprobsTest, MoreThanTwentyAreRefusedByName) {
  const auto engine = make_engine(exact_options());
  for (const int32_t wanted : {-1, 21}) {
    const auto id = engine->submit(scoring({1, 2}, wanted), [](const RequestOutput&) {});
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(id.status().message().find("prompt_logprobs: "), 0u) << id.status().message();
  }
}

}  // namespace
}  // namespace zipage::testing_engine
