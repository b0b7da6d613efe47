#include "soak/episode.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fmt/format.h>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/engine_impl.h"
#include "support/unruly_backend.h"

namespace zipage::testing {
namespace {

constexpr const char* kInjected = "this compression must fail";

template <typename... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw std::runtime_error(fmt::format(format, std::forward<Args>(args)...));
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool one_in(int n) { return pick(1, n) == 1; }
  uint64_t seed() { return random_(); }
  template <typename T>
  T of(std::initializer_list<T> list) {
    return *(list.begin() + pick(0, static_cast<int>(list.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

// What a caller has heard of one request. Written on the step thread.
struct Heard {
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    FinishReason finish = FinishReason::kNone;
    std::string error;
  };
  Request request;
  RequestId id = 0;
  std::vector<Sequence> sequences;
  std::atomic<int> open{0};  // sequences that have not ended
  std::atomic<bool> abort_asked{false};
};

class Episode {
 public:
  Episode(const TinyModel& model, const SoakSettings& settings)
      : settings_(settings), dice_(settings.seed) {
    options_ = random_options(model);
    auto backend = std::make_unique<UnrulyBackend>(options_.num_threads);
    backend_ = backend.get();
    UnrulyBackend::Behaviour& b = backend->behaviour;
    if (dice_.one_in(3)) b.late = true;
    b.manual = !settings.threads && dice_.one_in(2);
    const int held = dice_.pick(0, 9);
    engine_dice_ = std::make_unique<Dice>(dice_.seed());
    b.holds = [this, held](int64_t) { return engine_dice_->pick(0, 9) < held; };
    if (dice_.one_in(4)) b.fails = [this](int64_t) { return engine_dice_->one_in(40); };
    options_.step_done = [this] { after_step(); };
    engine_ =
        std::make_unique<EngineImpl>(build_engine_parts(options_, std::move(backend)), options_);
  }

  SoakTotals run() {
    if (settings_.threads) {
      run_threads();
    } else {
      run_here();
    }
    check_end();
    compare_some();
    return totals();
  }

 private:
  EngineOptions random_options(const TinyModel& model) {
    EngineOptions o;
    o.model = model.path();
    o.load_format = "dummy";
    o.device = "cpu";
    o.dtype = "float32";
    o.num_threads = dice_.pick(1, 3);
    if (dice_.one_in(3)) o.kv_cache_dtype = dice_.of({"bfloat16", "float16"});
    o.block_size = dice_.of({4, 8, 16, 16, 32});
    const int max_blocks = dice_.pick(3, 6);
    set_compression(max_blocks, o);
    o.num_gpu_blocks_override = dice_.pick(max_blocks, dice_.of({12, 24, 60}));
    o.max_num_seqs = dice_.pick(1, 20);
    o.max_num_batched_tokens = std::max(o.max_num_seqs, dice_.of({8, 24, 64, 256}));
    o.max_model_len = 256;
    o.scheduling_policy = SchedulingPolicy::kPriority;
    o.enable_prefix_caching = !dice_.one_in(4);
    o.async_compression = !dice_.one_in(6);
    o.scheduling = dice_.one_in(2) ? Scheduling::kHybrid : Scheduling::kConstrained;
    if (settings_.swap) o.swap_space_bytes = int64_t{dice_.of({24, 64, 512})} << 10;
    return o;
  }

  void set_compression(int max_blocks, EngineOptions& o) {
    CompressionOptions& c = o.compression;
    c.kv_budget = int64_t{max_blocks - 1} * o.block_size;
    do {
      c.window_size = dice_.of({1, 2, 4, 8, 16});
    } while (c.window_size > o.block_size || c.window_size >= c.kv_budget);
    const auto most = static_cast<int>(c.kv_budget) - 1;
    c.protect_newest = dice_.one_in(2) ? c.window_size : dice_.pick(0, most);
    if (dice_.one_in(4))
      c.sink_tokens = dice_.pick(0, most - std::max(*c.protect_newest, c.window_size));
    c.protect_prompt = dice_.one_in(8);
    c.attention_half_life = dice_.one_in(4) ? 128 : dice_.pick(1, 20);
    c.layer_stride = dice_.of({1, 8});
    if (dice_.one_in(3)) c.score_weight = 0.1 * dice_.pick(0, 10);
    c.score_reduce = dice_.of({ScoreReduce::kMax, ScoreReduce::kSum});
    c.pooling = dice_.of({Pooling::kFirst, Pooling::kNever, Pooling::kAlways});
    c.pooling_width = dice_.of({1, 3, 5});
    c.redundancy = dice_.of({Redundancy::kLightning, Redundancy::kFlash, Redundancy::kRaw});
    c.combine = dice_.of({Combine::kConvex, Combine::kSubtract});
    c.derotate = dice_.one_in(3);
  }

  Request random_request(Dice& dice) const {
    const int b = options_.block_size;
    Request r;
    const int length = dice.one_in(5) ? dice.pick(1, 150) : dice.pick(1, 50);
    const int variant = dice.pick(0, 3);  // common beginnings
    for (int i = 0; i < length; ++i)
      r.prompt_token_ids.push_back(3 + (i * 7 + (i > 20 ? variant * 11 : 0)) % 90);
    SamplingParams& p = r.sampling;
    p.max_tokens = dice.pick(1, 70);
    p.ignore_eos = true;
    p.detokenize = false;
    p.logprobs = 0;
    p.temperature = dice.one_in(2) ? 0 : 1;
    p.seed = dice.seed();
    if (dice.one_in(6)) p.repetition_penalty = 1.3;
    if (dice.one_in(6)) p.frequency_penalty = 0.4;
    if (dice.one_in(8)) p.allowed_token_ids = {5, 9, 33, 34, 70};
    if (dice.one_in(8)) p.stop_token_ids = {static_cast<int32_t>(dice.pick(3, 90)), 4};
    if (dice.one_in(12)) p.n = 2;
    const int most = static_cast<int>(options_.compression.kv_budget / b);
    p.kv_budget = dice.one_in(6) ? kFullKv : int64_t{dice.pick(1, most)} * b;
    p.kv_policy = dice.of({KvPolicy::kPeak, KvPolicy::kPeak, KvPolicy::kPaper, KvPolicy::kGlobal,
                           KvPolicy::kAttention, KvPolicy::kRedundancy, KvPolicy::kRecency,
                           KvPolicy::kRandom});
    r.priority = dice.one_in(8) ? -1 : 0;
    if (dice.one_in(10)) r.cache_salt = "salt";
    return r;
  }

  OutputCallback listener(Heard& heard) {
    return [this, &heard](const RequestOutput& output) {
      Heard::Sequence& s = heard.sequences.at(static_cast<size_t>(output.index));
      if (s.finish != FinishReason::kNone) note("an output after the end");
      s.tokens.insert(s.tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      for (const auto& list : output.new_logprobs) s.logprobs.push_back(list.at(0).logprob);
      if (!output.finished()) return;
      s.finish = output.finish_reason;
      s.error = output.error.message();
      --heard.open;
    };
  }

  void submit(Dice& dice) {
    auto heard = std::make_unique<Heard>();
    heard->request = random_request(dice);
    const int n = heard->request.sampling.n;
    heard->sequences.resize(static_cast<size_t>(n));
    heard->open = n;
    Heard& place = *heard;
    {
      std::lock_guard lock(mutex_);
      all_.push_back(std::move(heard));
    }
    auto id = engine_->submit(place.request, listener(place));
    if (!id.ok()) {
      if (id.status().code() != StatusCode::kInvalidArgument)
        wrong("a request was refused: {}", id.status().message());
      place.open = 0;
      ++num_refused_;
      return;
    }
    std::lock_guard lock(mutex_);
    place.id = *id;
  }

  void abort_one(Dice& dice) {
    std::lock_guard lock(mutex_);
    if (all_.empty()) return;
    Heard& heard = *all_[static_cast<size_t>(dice.pick(
        std::max(0, static_cast<int>(all_.size()) - 30), static_cast<int>(all_.size()) - 1))];
    if (heard.id == 0) return;
    heard.abort_asked = true;
    engine_->abort(heard.id);
  }

  // On the step thread, after every step. The first thing that is wrong is kept for the thread that
  // waits.
  void after_step() {
    try {
      engine_->scheduler_for_test().check_invariants();
    } catch (const std::exception& error) {
      note(error.what());
    }
    most_compressing_ = std::max(most_compressing_, engine_->stats().num_compressing);
  }

  void note(const std::string& fault) {
    std::lock_guard lock(mutex_);
    if (fault_.empty()) fault_ = fault;
  }
  void check_fault() {
    std::lock_guard lock(mutex_);
    if (fault_.empty()) return;
    std::fprintf(stderr, "%s\n", fault_.c_str());  // before an engine that hangs is waited for
    wrong("{}", fault_);
  }

  void run_here() {
    const int count = dice_.pick(20, 120);
    int submitted = 0;
    const int arrival = dice_.of({1, 3, 12});
    for (int64_t steps = 0;; ++steps) {
      if (steps > 100000) wrong("no end after {} steps", steps);
      check_fault();
      if (submitted < count && dice_.one_in(arrival)) {
        submit(dice_);
        ++submitted;
      }
      if (dice_.one_in(25)) abort_one(dice_);
      if (dice_.one_in(15)) preempt_one();
      if (dice_.one_in(400)) engine_->reset_prefix_cache();
      if (backend_->behaviour.manual) backend_->run_compressions(dice_.pick(0, 12));
      if (!engine_->step() && submitted == count && !engine_->step()) return;
    }
  }

  void preempt_one() {
    std::vector<RequestId> ids;
    for (const auto& heard : all_) {
      if (heard->open > 0 && heard->id != 0) ids.push_back(heard->id);
    }
    if (ids.empty()) return;
    const RequestId id = ids[static_cast<size_t>(dice_.pick(0, static_cast<int>(ids.size()) - 1))];
    for (const SequenceId sequence : engine_->sequences_for_test(id))
      engine_->scheduler_for_test().force_preempt(sequence);
    engine_->scheduler_for_test().check_invariants();
  }

  void run_threads() {
    const int count = dice_.pick(20, 80);
    std::string failures[2];
    engine_->start();
    std::vector<std::thread> clients;
    for (size_t c = 0; c < 2; ++c) {
      clients.emplace_back([this, count, &failure = failures[c], seed = dice_.seed()] {
        try {
          Dice dice(seed);
          for (int i = 0; i < count; ++i) {
            submit(dice);
            if (dice.one_in(12)) abort_one(dice);
            if (dice.one_in(100)) engine_->reset_prefix_cache();
            if (dice.one_in(3)) std::this_thread::sleep_for(std::chrono::microseconds(300));
            engine_->stats();
          }
        } catch (const std::exception& error) {
          failure = error.what();
        }
      });
    }
    if (dice_.one_in(2)) {  // a pause
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      engine_->stop();
      engine_->start();
    }
    for (std::thread& client : clients) client.join();
    // A sanitizer on a busy machine may take minutes; new tokens say that it goes on.
    auto last = std::chrono::steady_clock::now();
    int64_t tokens = -1;
    while (std::any_of(all_.begin(), all_.end(), [](const auto& h) { return h->open > 0; })) {
      const auto now = std::chrono::steady_clock::now();
      if (const int64_t n = engine_->stats().generation_tokens; n != tokens) {
        tokens = n;
        last = now;
      }
      if (now > last + std::chrono::minutes(4)) note("requests wait for ever");
      check_fault();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    engine_->stop();
    while (engine_->step()) {  // compressions of the aborted
    }
    for (const std::string& failure : failures) {
      if (!failure.empty()) wrong("{}", failure);
    }
  }

  void check_end() {
    check_fault();
    const EngineStats s = engine_->stats();
    engine_->scheduler_for_test().check_invariants();
    if (s.num_free_blocks != s.num_blocks || s.num_used_query_slots != 0)
      wrong("{} of {} blocks and {} slots are not given back", s.num_blocks - s.num_free_blocks,
            s.num_blocks, s.num_used_query_slots);
    if (s.num_running + s.num_waiting + s.num_swapped + s.num_compressing != 0)
      wrong("the engine still believes in requests");
    if (engine_->scheduler_for_test().has_unfinished()) wrong("the scheduler is not done");
    for (const auto& heard : all_) {
      if (heard->id == 0) continue;
      for (const Heard::Sequence& q : heard->sequences) {
        const bool ended = q.finish == FinishReason::kStop || q.finish == FinishReason::kLength;
        const bool aborted = q.finish == FinishReason::kAbort && heard->abort_asked;
        const bool failed = q.finish == FinishReason::kError && q.error == kInjected &&
                            backend_->behaviour.fails != nullptr;
        if (!ended && !aborted && !failed)
          wrong("request {} ended with '{}' {}", heard->id, to_string(q.finish), q.error);
        if (static_cast<int64_t>(q.tokens.size()) > *heard->request.sampling.max_tokens ||
            q.tokens.size() != q.logprobs.size())
          wrong("request {} has {} tokens and {} log-probabilities", heard->id, q.tokens.size(),
                q.logprobs.size());
      }
    }
  }

  // Some answers, the aborted ones too, against the same request in an engine of its own.
  void compare_some() {
    EngineOptions calm = options_;
    calm.step_done = nullptr;
    calm.num_gpu_blocks_override = 100;
    calm.max_num_batched_tokens = 512;
    calm.enable_prefix_caching = calm.async_compression = false;
    calm.swap_space_bytes = 0;
    EngineImpl engine(build_engine_parts(calm), calm);
    for (const auto& heard : all_) {
      if (heard->id == 0 || !dice_.one_in(5)) continue;
      std::vector<Heard::Sequence> alone(heard->sequences.size());
      const auto id = engine.submit(heard->request, [&](const RequestOutput& output) {
        Heard::Sequence& s = alone.at(static_cast<size_t>(output.index));
        s.tokens.insert(s.tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        for (const auto& list : output.new_logprobs) s.logprobs.push_back(list.at(0).logprob);
        if (output.finished()) s.finish = output.finish_reason;
      });
      if (!id.ok()) wrong("alone: {}", id.status().message());
      engine.run_until_idle();
      for (size_t i = 0; i < alone.size(); ++i) {
        const Heard::Sequence& a = alone[i];
        const Heard::Sequence& b = heard->sequences[i];
        const bool whole = b.finish == FinishReason::kStop || b.finish == FinishReason::kLength;
        const bool same = b.tokens.size() <= a.tokens.size() &&
                          std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin()) &&
                          std::equal(b.logprobs.begin(), b.logprobs.end(), a.logprobs.begin());
        if (!same || (whole && (b.finish != a.finish || b.tokens.size() != a.tokens.size()))) {
          const auto difference = std::mismatch(b.logprobs.begin(), b.logprobs.end(),
                                                a.logprobs.begin(), a.logprobs.end());
          wrong(
              "request {} (prompt {}, budget {}, policy {}) differs from the run alone at token "
              "{} of {}",
              heard->id, heard->request.prompt_token_ids.size(), *heard->request.sampling.kv_budget,
              to_string(*heard->request.sampling.kv_policy), difference.first - b.logprobs.begin(),
              a.tokens.size());
        }
        ++num_compared_;
      }
    }
  }

  SoakTotals totals() const {
    const EngineStats s = engine_->stats();
    SoakTotals t;
    t.episodes = 1;
    t.requests = static_cast<int64_t>(all_.size());
    t.refused = num_refused_;
    for (const auto& heard : all_) {
      for (const Heard::Sequence& q : heard->sequences) {
        t.tokens += static_cast<int64_t>(q.tokens.size());
        t.aborted += q.finish == FinishReason::kAbort ? 1 : 0;
        t.failed_jobs += q.finish == FinishReason::kError ? 1 : 0;
      }
    }
    t.compared = num_compared_;
    t.steps = s.steps;
    t.compressions = s.compressions;
    t.preemptions = s.preemptions;
    t.recomputed = s.recomputed_tokens;
    t.swapped_out = s.swapped_out_blocks;
    t.prefix_hits = s.prefix_cache_hits;
    t.most_compressing = most_compressing_;
    return t;
  }

  const SoakSettings settings_;
  Dice dice_;
  std::unique_ptr<Dice> engine_dice_;  // of the step thread
  EngineOptions options_;
  UnrulyBackend* backend_ = nullptr;
  std::mutex mutex_;  // guards the list, the ids in it and the fault
  std::deque<std::unique_ptr<Heard>> all_;
  std::atomic<int64_t> num_refused_{0};
  int64_t num_compared_ = 0, most_compressing_ = 0;
  std::string fault_;
  std::unique_ptr<EngineImpl> engine_;  // last: its thread uses the rest
};

}  // namespace

void SoakTotals::add(const SoakTotals& o) {
  episodes += o.episodes;
  requests += o.requests;
  refused += o.refused;
  aborted += o.aborted;
  failed_jobs += o.failed_jobs;
  compared += o.compared;
  steps += o.steps;
  tokens += o.tokens;
  compressions += o.compressions;
  preemptions += o.preemptions;
  recomputed += o.recomputed;
  swapped_out += o.swapped_out;
  prefix_hits += o.prefix_hits;
  most_compressing = std::max(most_compressing, o.most_compressing);
}

std::string SoakTotals::line() const {
  return fmt::format(
      "{} episodes, {} requests ({} refused, {} aborted, {} with a failed compression), {} steps, "
      "{} tokens, {} compressions (up to {} at once), {} preemptions, {} tokens recomputed, {} "
      "blocks swapped out, {} prefix hits, {} answers compared",
      episodes, requests, refused, aborted, failed_jobs, steps, tokens, compressions,
      most_compressing, preemptions, recomputed, swapped_out, prefix_hits, compared);
}

std::string SoakTotals::missing(bool swaps) const {
  const std::pair<const char*, int64_t> counts[] = {{"aborted", aborted},
                                                    {"failed compressions", failed_jobs},
                                                    {"compared", compared},
                                                    {"compressions", compressions},
                                                    {"compressions at once", most_compressing},
                                                    {"preemptions", preemptions},
                                                    {"recomputed tokens", recomputed},
                                                    {"prefix hits", prefix_hits},
                                                    {"swapped blocks", swaps ? swapped_out : 1}};
  for (const auto& [name, count] : counts) {
    if (count == 0) return name;
  }
  return "";
}

SoakTotals run_episode(const TinyModel& model, const SoakSettings& settings) {
  return Episode(model, settings).run();
}

}  // namespace zipage::testing
