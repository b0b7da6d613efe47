// Engines over a tiny model whose compressions a test controls, and the answers they give.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "engine/engine_impl.h"
#include "support/tiny_model.h"
#include "support/unruly_backend.h"

namespace zipage::testing_engine {

constexpr int kTinyBlock = 16;

inline EngineOptions tiny_options(const testing::TinyModel& model) {
  EngineOptions o;
  o.model = model.path();
  o.load_format = "dummy";
  o.device = "cpu";
  o.dtype = "float32";
  o.num_threads = 1;
  o.block_size = kTinyBlock;
  o.num_gpu_blocks_override = 64;
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 256;
  o.max_model_len = 512;
  o.seed = 0;
  o.compression.kv_budget = 2 * kTinyBlock;
  o.compression.window_size = 8;
  o.compression.protect_newest = 8;
  o.compression.attention_half_life = 8;
  return o;
}

// An engine over a backend that disturbs it, and the answers it has given.
template <class DisturbingBackend>
class EngineOver {
 public:
  EngineOver(const EngineOptions& options, std::unique_ptr<DisturbingBackend> backend)
      : backend_(backend.get()),
        engine_(std::make_unique<EngineImpl>(build_engine_parts(options, std::move(backend)),
                                             options)) {}
  DisturbingBackend& backend() { return *backend_; }
  EngineImpl& engine() { return *engine_; }
  Scheduler& scheduler() { return engine_->scheduler_for_test(); }
  EngineStats stats() const { return engine_->stats(); }

  // The answer's place does not move until clear().
  RequestId submit(const Request& request) {
    answers_.push_back(std::make_unique<Answer>());
    auto id = engine_->submit(request, collect_into(*answers_.back()));
    if (!id.ok()) throw std::runtime_error(id.status().message());
    return *id;
  }
  const Answer& answer(size_t index) const { return *answers_.at(index); }
  size_t num_answers() const { return answers_.size(); }
  void clear() { answers_.clear(); }

  // A step and what must hold after it.
  bool step() {
    const bool more = engine_->step();
    scheduler().check_invariants();
    return more;
  }
  void finish() {
    while (step()) {
    }
  }
  // Nobody holds anything any more.
  void expect_nothing_held() const {
    const EngineStats s = engine_->stats();
    EXPECT_EQ(s.num_free_blocks, s.num_blocks);
    EXPECT_EQ(s.num_used_query_slots, 0);
    EXPECT_EQ(s.num_running + s.num_waiting + s.num_swapped + s.num_compressing, 0);
  }

 private:
  DisturbingBackend* backend_;
  // Outlives the engine, whose end delivers what is left.
  std::vector<std::unique_ptr<Answer>> answers_;
  std::unique_ptr<EngineImpl> engine_;
};

// `behaviour` holds from the start; more through backend().
class TinyEngine : public EngineOver<testing::UnrulyBackend> {
 public:
  explicit TinyEngine(const EngineOptions& options,
                      testing::UnrulyBackend::Behaviour behaviour = {})
      : EngineOver(options, unruly(options.num_threads, std::move(behaviour))) {}

 private:
  static std::unique_ptr<testing::UnrulyBackend> unruly(
      int num_threads, testing::UnrulyBackend::Behaviour behaviour) {
    auto backend = std::make_unique<testing::UnrulyBackend>(num_threads);
    backend->behaviour = std::move(behaviour);
    return backend;
  }
};

// Prompt ids first, first + 1, ... within the vocabulary; greedy, with log-probabilities.
inline Request tiny_request(int first, int length, int64_t max_tokens) {
  Request r;
  for (int i = 0; i < length; ++i)
    r.prompt_token_ids.push_back(3 + (first + i * 5) % (testing::TinyModel::kVocab - 3));
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.detokenize = false;
  r.sampling.logprobs = 0;
  return r;
}

}  // namespace zipage::testing_engine
