// A model of the published implementation's scheduler, in its own words: a queue of waiting and one
// of running requests, a step that is either all prompts or all decodes, the last request preempted
// when a block is missing.
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "schedule/simulate_internal.h"

namespace zipage {
namespace {

struct Request {
  int32_t tokens = 0;  // prompt and sampled
  int32_t prompt = 0;
  int32_t left = 0;    // output tokens to come
  int32_t stored = 0;  // KV entries
  int32_t blocks = 0;
  bool slot = false;
  bool compressed = false;
  bool aged = false;
  int32_t lost = 0;
};

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

class Published {
 public:
  Published(const SimulationOptions& options, const std::vector<TraceRequest>& trace)
      : options_(options),
        free_blocks_(options.num_blocks),
        free_slots_(query_slots(options)),
        requests_(trace.size()) {
    token_budget_ = options.max_num_batched_tokens;
    for (size_t i = 0; i < trace.size(); ++i) {
      Request& r = requests_[i];
      r.tokens = r.prompt = options.shared_prefix_tokens + trace[i].prompt_tokens + trace[i].age;
      r.left = trace[i].output_tokens - trace[i].age;
      r.aged = trace[i].age > 0 && capped();
      num_young_ += r.aged ? 1 : 0;
      // A prompt above the token budget spins for ever there: it gets a budget that lets it
      // through.
      token_budget_ = std::max(token_budget_, trace[i].prompt_tokens + trace[i].output_tokens +
                                                  options.shared_prefix_tokens);
      if (ceil_div(r.tokens, options.block_size) > options.num_blocks) {
        fail_invalid("request {}: {} tokens need more than {} blocks of {}", i, r.tokens,
                     options.num_blocks, options.block_size);
      }
      waiting_.push_back(&r);
    }
  }

  SimulationResult run() {
    while (!waiting_.empty() || !running_.empty()) {
      give_slots();
      const std::vector<Request*> batch = admit();
      const bool steady = num_young_ == 0 && !waiting_.empty();
      const std::vector<Request*> computed = batch.empty() ? decode() : batch;
      if (computed.empty() && !progress_)
        fail(StatusCode::kInternal, "the published scheduler is stuck");
      meter_.step(static_cast<int64_t>(computed.size()), steady,
                  options_.num_blocks - free_blocks_);
      for (Request* r : computed) after_step(*r);
    }
    meter_.report(options_.num_blocks, result_);
    return result_;
  }

 private:
  bool capped() const { return options_.max_blocks_per_seq > 0; }

  void give_slots() {
    for (Request* r : running_) {
      if (!capped() || r->slot || free_slots_ == 0) continue;
      r->slot = true;
      --free_slots_;
    }
  }

  // Whole prompts; blocks are counted without looking at the prefix cache or at what the running
  // ones will need.
  std::vector<Request*> admit() {
    std::vector<Request*> batch;
    int32_t tokens = 0;
    while (!waiting_.empty() && static_cast<int32_t>(batch.size()) < options_.max_num_seqs) {
      Request& r = *waiting_.front();
      const int32_t blocks = ceil_div(r.tokens, options_.block_size);
      if (tokens + r.tokens > token_budget_ || blocks > free_blocks_) break;
      waiting_.pop_front();
      running_.push_back(&r);
      free_blocks_ -= blocks;
      r.blocks = blocks;
      tokens += r.tokens;
      result_.computed_tokens += r.tokens;
      result_.recomputed_tokens += r.lost;
      r.lost = 0;
      batch.push_back(&r);
    }
    return batch;
  }

  std::vector<Request*> decode() {
    std::vector<Request*> batch;
    progress_ = false;
    for (size_t i = 0; i < running_.size(); ++i) {
      Request& r = *running_[i];
      const int32_t b = options_.block_size;
      const bool late = r.stored / b >= options_.max_blocks_per_seq - 1 &&
                        r.stored % b >= b - options_.compression.window_size;
      if (capped() && !r.slot && late) {
        ++result_.blocked_steps;
        continue;
      }
      if (r.stored == r.blocks * b) {
        while (free_blocks_ == 0 && preempt_behind(i)) {
        }
        if (free_blocks_ == 0) {
          if (r.slot) {
            ++result_.blocked_steps;
          } else {
            preempt(i--);  // itself, as in vLLM
          }
          continue;
        }
        --free_blocks_;
        ++r.blocks;
      }
      ++result_.computed_tokens;
      batch.push_back(&r);
    }
    return batch;
  }

  bool preempt_behind(size_t requester) {
    for (size_t i = running_.size(); i-- > requester + 1;) {
      if (running_[i]->slot) continue;
      preempt(i);
      return true;
    }
    return false;
  }

  void preempt(size_t index) {
    Request& r = *running_[index];
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
    free_blocks_ += r.blocks;
    r.lost = std::max(r.lost, r.stored);
    r.blocks = r.stored = 0;
    waiting_.push_front(&r);
    ++result_.preemptions;
    progress_ = true;
  }

  void after_step(Request& r) {
    const int32_t b = options_.block_size;
    r.stored = r.stored == 0 ? r.tokens : r.stored + 1;
    ++r.tokens;
    ++result_.output_tokens;
    if (--r.left == 0) {
      finish(r);
      return;
    }
    const bool full = r.stored % b == 0 && r.stored >= options_.max_blocks_per_seq * b;
    if (!capped() || !full || !r.slot) return;
    free_blocks_ += r.blocks - (options_.max_blocks_per_seq - 1);
    r.blocks = options_.max_blocks_per_seq - 1;
    r.stored = r.blocks * b;
    ++result_.compressions;
    grown(r);
  }

  void grown(Request& r) {
    if (!r.aged) return;
    r.aged = false;
    --num_young_;
  }

  void finish(Request& r) {
    grown(r);
    free_blocks_ += r.blocks;
    if (r.slot) ++free_slots_;
    running_.erase(std::find(running_.begin(), running_.end(), &r));
  }

  const SimulationOptions& options_;
  int32_t free_blocks_;
  int32_t free_slots_;
  int32_t token_budget_ = 0;
  int64_t num_young_ = 0;
  bool progress_ = false;
  std::vector<Request> requests_;
  std::deque<Request*> waiting_;
  std::vector<Request*> running_;
  StepMeter meter_;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate_published(const SimulationOptions& options,
                                    const std::vector<TraceRequest>& trace) {
  return Published(options, trace).run();
}

}  // namespace zipage
