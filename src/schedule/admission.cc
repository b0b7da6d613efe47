// Who leaves the waiting list, and what is kept free for those that run.
#include <algorithm>

#include "base/check.h"
#include "base/integer.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

void SchedulerImpl::admit_waiting() {
  // Strictly in order: nobody overtakes the first, so that it cannot starve.
  while (!waiting_.empty() && budget_ > 0 && static_cast<int32_t>(running_.size()) < max_running_) {
    Sequence& s = **waiting_.begin();
    if (!admit(s)) return;
    const int32_t num_tokens = std::min(s.step_end() - s.computed, budget_);
    if (num_tokens > 0 && !s.at_trigger()) plan_row(s, num_tokens);
  }
}

bool SchedulerImpl::admit(Sequence& s) {
  const int32_t b = options_.block_size;
  const bool swapped = s.state == SequenceState::kSwapped;
  bool with_slot = false;
  if (s.rules.needs_slot) {
    const bool others_wait = std::any_of(running_.begin(), running_.end(),
                                         [](const Sequence* r) { return r->lacks_slot(); });
    with_slot = !others_wait && may_take_slot(s);
    if (!with_slot) {
      if (options_.scheduling == Scheduling::kConstrained || s.swapped_slot) return false;
      // Without a slot only what can do something new.
      if (s.num_tokens > s.rules.slotless_limit) return false;
    }
  }
  hits_.clear();
  if (!swapped) find_prefix(s);
  const int32_t num_blocks = ceil_div(s.kv_target(), b);
  const int32_t num_hits = static_cast<int32_t>(hits_.size());
  int32_t free_hits = 0;
  for (const PrefixIndex::Handle& hit : hits_)
    free_hits += blocks_.ref_count(hit.block) == 0 ? 1 : 0;
  const int32_t free_after = blocks_.num_free() - (num_blocks - num_hits) - free_hits;
  if (free_after < 0) return false;
  if (!running_.empty() && options_.watermark) {
    forecast_.begin();
    forecast_running();
    const bool has_history = s.history > 0;
    forecast(s, with_slot, num_blocks, has_history ? 0 : num_hits - free_hits);
    if (!forecast_.fits(free_after)) return false;
  }

  waiting_.erase(&s);
  s.table.reserve(static_cast<size_t>(std::max(num_blocks, s.rules.final_blocks())));
  for (const PrefixIndex::Handle& hit : hits_) {
    blocks_.acquire(hit.block);
    s.table.push_back(hit.block);
  }
  while (static_cast<int32_t>(s.table.size()) < num_blocks) s.table.push_back(allocate_block());
  enter_running(s);
  if (with_slot) give_slot(s);
  if (swapped) {
    swap_in(s);
  } else {
    s.computed = s.kv_length = num_hits * b;
    s.num_published = num_hits;
    s.published = hits_.empty() ? PrefixIndex::Handle() : hits_.back();
    const int64_t recomputed = std::max(0, s.lost - s.computed);
    counters_.recomputed_tokens += recomputed;
    forecast_.lost(recomputed);
    s.lost = 0;
    if (!s.was_admitted) {
      s.cached_tokens = s.computed;
      if (s.spec.reads_prefix_cache) counters_.prefix_queries += s.rules.prompt_length;
      counters_.prefix_hits += s.computed;
    }
  }
  s.was_admitted = true;
  return true;
}

// The blocks of all holders fit together (N_max each): compressed sequences, which always hold a
// slot, can then all go on once the uncompressed ones have given way.
bool SchedulerImpl::may_take_slot(const Sequence& s) const {
  return slots_.num_free() > 0 && committed_blocks_ + s.rules.final_blocks() <= options_.num_blocks;
}

void SchedulerImpl::give_slot(Sequence& s) {
  s.slot = slots_.allocate();
  committed_blocks_ += s.rules.final_blocks();
}

void SchedulerImpl::return_slot(Sequence& s) {
  if (!s.slot.valid()) return;
  slots_.release(s.slot);
  s.slot = SlotId();
  committed_blocks_ -= s.rules.final_blocks();
}

int32_t SchedulerImpl::num_shared(const Sequence& s) const {
  if (s.history > 0 || !s.will_be_compressed()) return 0;
  const size_t num_targets = std::min(s.table.size(), static_cast<size_t>(s.rules.max_blocks - 1));
  int32_t shared = 0;
  for (size_t i = 0; i < num_targets; ++i) shared += blocks_.ref_count(s.table[i]) > 1 ? 1 : 0;
  return shared;
}

// What the sequence, which holds `held` blocks, will still ask for. A sequence without a slot stops
// at its limit: when it gets one, somebody else has left. A full KV cache grows without a bound
// worth planning for: one block.
void SchedulerImpl::forecast(const Sequence& s,
                             bool with_slot,
                             int32_t held,
                             int32_t shared) const {
  const int32_t b = options_.block_size;
  const int32_t steps = held * b - (s.num_tokens - s.evicted());
  int32_t most = s.rules.final_blocks();
  if (!s.rules.capped()) {
    most = std::min(most, held + 1);
  } else if (s.rules.needs_slot && !with_slot) {
    most = std::min(most, ceil_div(s.rules.slotless_limit, b));
    shared = 0;
  }
  if (most > held) forecast_.grows(most - held, steps);
  if (shared > 0) forecast_.asks(shared, s.next_trigger() - s.num_tokens);
}

void SchedulerImpl::forecast_running() const {
  for (const Sequence* s : running_) {
    if (s->state == SequenceState::kCompressing || s->aborted)
      continue;  // will hold less, not more
    forecast(*s, s->slot.valid(), static_cast<int32_t>(s->table.size()), num_shared(*s));
  }
}

int32_t SchedulerImpl::num_spare_blocks() const {
  forecast_.begin();
  forecast_running();
  return std::max(0, blocks_.num_free() - forecast_.soon());
}

void SchedulerImpl::enter_running(Sequence& s) {
  s.state = SequenceState::kRunning;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, ServedBefore()), &s);
}

void SchedulerImpl::leave_running(Sequence& s) {
  const auto at = std::lower_bound(running_.begin(), running_.end(), &s, ServedBefore());
  ZIPAGE_CHECK(at != running_.end() && *at == &s);
  running_.erase(at);
}

}  // namespace zipage
