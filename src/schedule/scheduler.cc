#include "schedule/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/integer.h"
#include "schedule/scheduler_impl.h"

namespace zipage {
namespace {

template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

void require_positive(const char* name, int64_t value) {
  if (value <= 0) fail_invalid("{} is {}: it must be positive", name, value);
}

}  // namespace

std::unique_ptr<Scheduler> Scheduler::create(const SchedulerOptions& options) {
  require_positive("num_blocks", options.num_blocks);
  require_positive("block_size", options.block_size);
  require_positive("max_num_seqs", options.max_num_seqs);
  require_positive("max_num_batched_tokens", options.max_num_batched_tokens);
  require_positive("window_size", options.compression.window_size);
  if (options.block_size % options.compression.window_size != 0) {
    fail_invalid("block_size {} is not a multiple of window_size {}", options.block_size,
                 options.compression.window_size);
  }
  return std::make_unique<SchedulerImpl>(options);
}

// Every running sequence gets at least one token a step: the running set is no larger than the
// token budget.
SchedulerImpl::SchedulerImpl(const SchedulerOptions& options)
    : options_(options),
      max_running_(std::min(options.max_num_seqs, options.max_num_batched_tokens)),
      blocks_(options.num_blocks),
      prefixes_(options.enable_prefix_caching ? options.num_blocks : 0, options.block_size),
      slots_(options.max_query_slots),
      host_blocks_(options.num_host_blocks),
      forecast_(options.block_size, std::clamp(options.max_blocks_per_seq + 1, 2, 64)) {
  running_.reserve(static_cast<size_t>(max_running_));
  plan_.rows.reserve(static_cast<size_t>(max_running_));
  plan_.blocks.reserve(static_cast<size_t>(options.num_blocks) * 2);
}

Status SchedulerImpl::can_ever_run(const SequenceSpec& spec) const {
  const int64_t prompt = static_cast<int64_t>(spec.prompt_tokens().size());
  const int64_t b = options_.block_size;
  if (prompt == 0) return invalid("the prompt is empty: at least one token is needed");
  const int64_t longest = options_.max_model_len - (spec.prompt_only ? 0 : 1);
  if (options_.max_model_len > 0 && prompt > longest) {
    return invalid(
        "the prompt has {} tokens: with max_model_len {} at most {} leave room for an answer",
        prompt, options_.max_model_len, options_.max_model_len - 1);
  }
  if (spec.kv_budget < 0 || spec.kv_budget % b != 0) {
    return invalid("kv_budget {} is not a multiple of block_size {}", spec.kv_budget, b);
  }
  if (prompt > int64_t{options_.num_blocks} * b) {
    return invalid("the prompt has {} tokens: the KV cache holds {} ({} blocks of {})", prompt,
                   options_.num_blocks * b, options_.num_blocks, b);
  }
  // In 64 bits, before anything of 32 is derived from it.
  if (spec.kv_budget != kFullKv && spec.kv_budget / b + 1 > options_.max_blocks_per_seq) {
    return invalid(
        "kv_budget {} needs {} blocks of {}: this engine's compression slots allow {} (kv_budget "
        "{})",
        spec.kv_budget, spec.kv_budget / b + 1, b, options_.max_blocks_per_seq,
        std::max<int64_t>(0, options_.max_blocks_per_seq - 1) * b);
  }
  const SequenceRules rules(options_, spec);
  if (rules.capped()) {
    if (rules.needs_slot && slots_.size() == 0) {
      return invalid("kv_budget {} needs a compression slot: max_query_slots is 0", spec.kv_budget);
    }
    const CompressionOptions c = options_.compression.for_policy(spec.kv_policy);
    const int64_t newest = std::max(c.window_size, *c.protect_newest);
    const int64_t oldest = std::max<int64_t>(c.sink_tokens, c.protect_prompt ? prompt : 0);
    const bool compresses = rules.max_tokens - 1 >= rules.first_trigger;
    if (compresses && newest + oldest > spec.kv_budget) {
      return invalid(
          "{} entries are protected ({} newest, {} sinks, {} of the prompt): kv_budget is {}",
          newest + oldest, newest, c.sink_tokens, c.protect_prompt ? prompt : 0, spec.kv_budget);
    }
  }
  const int64_t needed = std::max<int64_t>(ceil_div(prompt, b), rules.final_blocks());
  if (needed > options_.num_blocks) {
    return invalid("{} tokens of prompt and {} of output need up to {} blocks of {}: there are {}",
                   prompt, rules.max_tokens - prompt, needed, b, options_.num_blocks);
  }
  return Status();
}

void SchedulerImpl::add(SequenceSpec spec) {
  const Status status = can_ever_run(spec);
  if (!status.ok()) throw Error(status.code(), status.message());
  const SequenceId id = spec.id;
  ZIPAGE_CHECK(sequences_.find(id) == sequences_.end());
  auto sequence = std::make_unique<Sequence>(options_, std::move(spec), next_arrival_++);
  waiting_.insert(sequence.get());
  sequences_.emplace(id, std::move(sequence));
}

void SchedulerImpl::abort(SequenceId id) {
  Sequence* s = find(id);
  if (s == nullptr || s->aborted) return;
  if (s->state == SequenceState::kCompressing) {
    const auto job = std::find_if(ready_jobs_.begin(), ready_jobs_.end(),
                                  [&](const CompressJob& j) { return j.job_id == s->job.job_id; });
    if (job == ready_jobs_.end()) {
      s->aborted = true;
      return;
    }
    ready_jobs_.erase(job);
  } else if (s->in_flight) {
    s->aborted = true;
    return;
  }
  leave(*s);
}

Sequence* SchedulerImpl::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

int64_t SchedulerImpl::cached_tokens(SequenceId id) const {
  const Sequence* s = find(id);
  return s == nullptr ? 0 : s->cached_tokens;
}

SchedulerStats SchedulerImpl::stats() const {
  SchedulerStats stats = counters_;
  stats.num_swapped = num_swapped_;
  stats.num_waiting = static_cast<int64_t>(waiting_.size()) - num_swapped_;
  stats.num_compressing = num_compressing_;
  stats.num_running = static_cast<int64_t>(running_.size()) - num_compressing_;
  stats.num_blocked = num_blocked_;
  stats.num_free_blocks = blocks_.num_free();
  stats.num_cached_blocks = blocks_.num_cached_free();
  stats.num_used_slots = slots_.size() - slots_.num_free();
  return stats;
}

}  // namespace zipage
