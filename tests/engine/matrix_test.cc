// The same sixty requests in every kind of company: alone, together, with shared prompts, in
// chunks, swapped, recomputed, with compressions under way, under both policies of scheduling, as a
// GPU's loop runs them, and on a device that is late. In f32 the tokens and their log-probabilities are the same bits.
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "engine/engine_fixture.h"
#include "engine/engine_impl.h"
#include "support/late_backend.h"
#include "support/unruly_backend.h"

namespace zipage::testing_engine {
namespace {

constexpr int kBlock = 16;
constexpr int kNumRequests = 60;

EngineOptions small_blocks() {
  EngineOptions o = exact_options();
  o.block_size = kBlock;
  o.num_gpu_blocks_override = 1200;
  o.max_num_seqs = 64;
  o.max_num_batched_tokens = 512;
  o.max_model_len = 512;
  o.scheduling_policy = SchedulingPolicy::kPriority;
  o.compression.kv_budget = 6 * kBlock;  // the largest a request may ask for
  o.compression.window_size = 8;
  o.compression.protect_newest = 12;
  o.compression.attention_half_life = 6;  // L0 lies within the prompt of some, behind it of others
  return o;
}

// Prompts of 20 to 134 tokens, many with common beginnings; five caps, all policies, four kinds of
// sampling.
std::vector<Request> requests(const Tokenizer& tokenizer) {
  constexpr int64_t kBudgets[] = {2 * kBlock, 3 * kBlock, 2 * kBlock,
                                  6 * kBlock, kFullKv,    4 * kBlock};
  constexpr KvPolicy kPolicies[] = {KvPolicy::kPeak,   KvPolicy::kPaper,      KvPolicy::kPeak,
                                    KvPolicy::kGlobal, KvPolicy::kPeak,       KvPolicy::kAttention,
                                    KvPolicy::kPeak,   KvPolicy::kRedundancy, KvPolicy::kRecency,
                                    KvPolicy::kPeak,   KvPolicy::kRandom};
  const auto list = problems(300, 1100, 12);
  std::vector<std::vector<int32_t>> texts;
  for (const TestProblem& problem : list)
    texts.push_back(tokenizer.encode(problem.prompt, {.add_special_tokens = false}));
  std::vector<Request> all;
  for (size_t i = 0; i < kNumRequests; ++i) {
    Request r;
    const auto& text = texts[i % 5];
    const size_t length = std::min(text.size(), 20 + i * 17 % 115);
    r.prompt_token_ids.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    SamplingParams& p = r.sampling;
    p.max_tokens = 30 + static_cast<int64_t>(i * 7 % 40);
    p.ignore_eos = true;
    p.logprobs = i % 5 == 0 ? 3 : 0;
    p.kv_budget = kBudgets[i % std::size(kBudgets)];
    p.kv_policy = kPolicies[i % std::size(kPolicies)];
    p.temperature = i % 3 == 0 ? 0 : 0.7 + 0.1 * static_cast<double>(i % 4);
    if (p.temperature > 0) p.seed = 1000 + i;
    if (i % 4 == 1) p.top_p = 0.9;
    if (i % 4 == 2) p.top_k = 20;
    if (i % 6 == 2) p.repetition_penalty = 1.2;
    if (i % 10 == 5) p.presence_penalty = 0.5;
    if (i % 15 == 4) p.n = 2;
    if (i % 20 == 7) p.bad_words = {"1", " 2"};
    if (i % 20 == 11) p.logit_bias = {{65, 1.5f}, {70, -100.0f}};
    if (i % 20 == 13) p.stop = {"Then"};
    if (i % 20 == 3) p.min_tokens = 12;
    if (i % 20 == 15) p.prompt_logprobs = 2;
    if (i % 20 == 17) {
      p.allowed_token_ids.emplace();
      for (int32_t id = 33; id < 127; id += 2) p.allowed_token_ids->push_back(id);
    }
    r.priority = i % 16 == 9 ? -1 : 0;
    all.push_back(std::move(r));
  }
  return all;
}

struct Outcome {
  std::map<std::pair<size_t, int32_t>, Answer> answers;  // by request and index
  EngineStats stats;
  int64_t most_compressing = 0;  // sequences, after a step
  int64_t compressed_swaps = 0;  // forced preemptions of compressed sequences
};

struct Setting {
  std::string name;
  std::function<void(EngineOptions&)> change = [](EngineOptions&) {};
  bool one_by_one = false;
  bool two_waves = false;   // the second half comes when the first has been compressed
  int preempt_every = 0;    // steps; 0: never
  bool like_a_gpu = false;  // samples are read a step late, jobs run in batches
  // Streams are queues that run late: LateBackend::Behaviour::progress.
  std::optional<double> late = {};
  std::function<void(const Outcome&)> check = [](const Outcome&) {};
};

class MatrixRun {
 public:
  explicit MatrixRun(const Setting& setting) : setting_(setting), random_(7) {
    EngineOptions options = small_blocks();
    setting.change(options);
    if (setting.late) {
      auto backend = std::make_unique<testing::LateBackend>(2);
      backend->behaviour.progress = *setting.late;
      late_ = backend.get();
      engine_ =
          std::make_unique<EngineImpl>(build_engine_parts(options, std::move(backend)), options);
    } else if (setting.like_a_gpu) {
      auto backend = std::make_unique<testing::UnrulyBackend>(2);
      backend->behaviour.late = true;
      engine_ =
          std::make_unique<EngineImpl>(build_engine_parts(options, std::move(backend)), options);
    } else {
      engine_ = std::make_unique<EngineImpl>(build_engine_parts(options), options);
    }
  }

  Outcome run() {
    requests_ = requests(engine_->tokenizer());
    const std::vector<Request>& all = requests_;
    const size_t first = setting_.two_waves ? all.size() / 2 : all.size();
    for (size_t i = 0; i < first; ++i) {
      submit(all[i], i);
      if (setting_.one_by_one) drive();
    }
    while (first < all.size() && engine_->stats().compressions < 20 && step()) {
    }
    for (size_t i = first; i < all.size(); ++i) submit(all[i], i);
    drive();
    outcome_.stats = engine_->stats();
    const EngineStats& s = outcome_.stats;
    EXPECT_EQ(s.num_free_blocks, s.num_blocks);
    EXPECT_EQ(s.num_used_query_slots, 0);
    if (late_ != nullptr) {
      EXPECT_EQ(late_->violations(), std::vector<std::string>{});
      EXPECT_GT(late_->most_queued(), 100u);
      EXPECT_GT(late_->num_graph_launches(), 0);
    }
    return std::move(outcome_);
  }

 private:
  void submit(const Request& request, size_t index) {
    auto id = engine_->submit(request, [this, index](const RequestOutput& output) {
      collect_into(outcome_.answers[{index, output.index}])(output);
    });
    if (!id.ok()) throw std::runtime_error(id.status().message());
    ids_.push_back(*id);
  }

  void drive() {
    while (step()) {
    }
  }

  bool step() {
    const bool more = engine_->step();
    Scheduler& scheduler = engine_->scheduler_for_test();
    scheduler.check_invariants();
    outcome_.most_compressing =
        std::max(outcome_.most_compressing, engine_->stats().num_compressing);
    if (setting_.preempt_every > 0 && ++num_steps_ % setting_.preempt_every == 0) {
      for (int k = 0; k < 4; ++k) {
        const size_t index = random_() % ids_.size();
        for (const SequenceId sequence : engine_->sequences_for_test(ids_[index])) {
          if (scheduler.force_preempt(sequence)) outcome_.compressed_swaps += compressed(index);
        }
      }
      scheduler.check_invariants();
    }
    return more;
  }

  // Whether all its sequences are past their first trigger.
  bool compressed(size_t index) const {
    const Request& r = requests_[index];
    const auto prompt = static_cast<int64_t>(r.prompt_token_ids.size());
    const int64_t budget = *r.sampling.kv_budget;
    const auto found = outcome_.answers.find({index, 0});
    if (budget == kFullKv || r.sampling.n > 1 || found == outcome_.answers.end()) return false;
    const int64_t trigger = std::max(budget + kBlock, (prompt + kBlock - 1) / kBlock * kBlock);
    return prompt + static_cast<int64_t>(found->second.tokens.size()) - 1 > trigger;
  }

  const Setting setting_;
  std::mt19937 random_;
  testing::LateBackend* late_ = nullptr;  // the engine's
  std::unique_ptr<EngineImpl> engine_;
  std::vector<Request> requests_;
  std::vector<RequestId> ids_;
  Outcome outcome_;
  int num_steps_ = 0;
};

void tiny_pool(EngineOptions& o) {
  o.num_gpu_blocks_override = 44;
  o.max_num_seqs = 24;
}

std::vector<Setting> settings() {
  const auto calm = [](const Outcome& o) {
    EXPECT_EQ(o.stats.preemptions, 0);
    EXPECT_EQ(o.stats.prefix_cache_hits, 0);
  };
  const auto hits = [](const Outcome& o) { EXPECT_GT(o.stats.prefix_cache_hits, 300); };
  const auto swaps = [](const Outcome& o) {
    EXPECT_GT(o.stats.swapped_out_blocks, 40);
    EXPECT_EQ(o.stats.swapped_in_blocks, o.stats.swapped_out_blocks);
    EXPECT_GT(o.compressed_swaps, 5);
  };
  const auto overlaps = [](const Outcome& o) { EXPECT_GE(o.most_compressing, 2); };
  std::vector<Setting> list;
  list.push_back({.name = "one batch, hybrid", .check = calm});
  list.push_back({.name = "one batch, constrained",
                  .change = [](EngineOptions& o) { o.scheduling = Scheduling::kConstrained; },
                  .check = calm});
  list.push_back({.name = "shared prompts",
                  .change = [](EngineOptions& o) { o.enable_prefix_caching = true; },
                  .two_waves = true,
                  .check = hits});
  list.push_back({.name = "chunks of 64",
                  .change = [](EngineOptions& o) { o.max_num_batched_tokens = 64; },
                  .check = [](const Outcome& o) { EXPECT_GT(o.stats.steps, 110); }});
  list.push_back({.name = "swap",
                  .change =
                      [](EngineOptions& o) {
                        tiny_pool(o);
                        o.swap_space_bytes = 24 << 20;
                      },
                  .preempt_every = 5,
                  .check = swaps});
  list.push_back(
      {.name = "recompute", .change = tiny_pool, .preempt_every = 5, .check = [](const Outcome& o) {
         EXPECT_GT(o.stats.recomputed_tokens, 500);
         EXPECT_EQ(o.stats.swapped_out_blocks, 0);
       }});
  list.push_back({.name = "asynchronous compression",
                  .change = [](EngineOptions& o) { o.async_compression = true; },
                  .check = overlaps});
  list.push_back({.name = "compression in turn on a late device",
                  .change = [](EngineOptions& o) { o.max_num_batched_tokens = 64; },
                  .late = 0.02});
  struct Device {
    const char* name;
    bool like_a_gpu = false;
    std::optional<double> late = {};
  };
  const Device devices[] = {{""},
                            {", samples read late", true},
                            {", work runs when waited for", false, 0.0},
                            {", work runs meanwhile", false, 0.05}};
  for (const Scheduling scheduling : {Scheduling::kHybrid, Scheduling::kConstrained}) {
    for (const Device& device : devices) {
      list.push_back({.name = std::string("everything, ") + to_string(scheduling) + device.name,
                      .change =
                          [scheduling](EngineOptions& o) {
                            tiny_pool(o);
                            o.scheduling = scheduling;
                            o.enable_prefix_caching = true;
                            o.async_compression = true;
                            o.max_num_batched_tokens = 64;
                            o.swap_space_bytes = 4 << 20;  // not enough for all
                          },
                      .two_waves = true,
                      .preempt_every = 4,
                      .like_a_gpu = device.like_a_gpu,
                      .late = device.late,
                      .check =
                          [=](const Outcome& o) {
                            hits(o);
                            swaps(o);
                            EXPECT_GE(o.most_compressing, 1);
                          }});
    }
  }
  return list;
}

TEST(MatrixTest, SixtyRequestsAnswerTheSameInEveryCompany) {
  const Outcome alone = MatrixRun({.name = "alone", .one_by_one = true}).run();
  ASSERT_EQ(alone.answers.size(), kNumRequests + 4u);
  EXPECT_EQ(alone.stats.num_running, 0);
  EXPECT_GT(alone.stats.compressions, 120);
  std::set<std::vector<int32_t>> different;
  for (const auto& [key, answer] : alone.answers) {
    EXPECT_TRUE(answer.finish == FinishReason::kLength || answer.finish == FinishReason::kStop);
    different.insert(answer.tokens);
  }
  EXPECT_GT(different.size(), 50u);
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const Outcome outcome = MatrixRun(setting).run();
    setting.check(outcome);
    // What is kept never depends on load: not even how often.
    EXPECT_EQ(outcome.stats.compressions, alone.stats.compressions);
    EXPECT_EQ(outcome.stats.evicted_tokens, alone.stats.evicted_tokens);
    ASSERT_EQ(outcome.answers.size(), alone.answers.size());
    for (const auto& [key, answer] : alone.answers) {
      SCOPED_TRACE(::testing::Message() << "request " << key.first << " index " << key.second);
      const Answer& other = outcome.answers.at(key);
      EXPECT_EQ(other.tokens, answer.tokens);
      EXPECT_EQ(other.logprobs, answer.logprobs);
      EXPECT_EQ(other.prompt_logprobs, answer.prompt_logprobs);
      EXPECT_EQ(other.text, answer.text);
      EXPECT_EQ(other.finish, answer.finish);
    }
  }
}

}  // namespace
}  // namespace zipage::testing_engine
