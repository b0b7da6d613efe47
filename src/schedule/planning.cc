// plan(): rows of the running sequences, decodes first, then what waits.
#include <algorithm>

#include "base/check.h"
#include "base/integer.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

const StepPlan& SchedulerImpl::plan() {
  plan_.swaps.clear();
  plan_.rows.clear();
  plan_.blocks.clear();
  plan_.num_tokens = 0;
  num_decodes_ = 0;
  budget_ = options_.max_num_batched_tokens;
  preempted_in_plan_ = false;
  plan_step();
  while (stuck()) {
    break_deadlock();
    plan_step();
  }
  plan_.swaps.swap(swaps_);
  counters_.blocked_steps += num_blocked_;
  return plan_;
}

void SchedulerImpl::plan_step() {
  num_blocked_ = 0;
  assign_slots();
  launch_waiting_compressions();
  plan_rows(/*decodes=*/true);
  plan_rows(/*decodes=*/false);
  // What was just preempted must not come back in the same breath.
  if (!preempted_in_plan_) admit_waiting();
}

bool SchedulerImpl::idle(const Sequence& s) const {
  return s.state == SequenceState::kRunning && !s.in_flight && !s.aborted;
}

// Freed slots go to the foremost runners without one (method.md 5).
void SchedulerImpl::assign_slots() {
  if (slots_.num_free() == 0) return;
  for (Sequence* s : running_) {
    if (!s->lacks_slot() || s->aborted) continue;
    if (!may_take_slot(*s)) return;
    give_slot(*s);
  }
}

void SchedulerImpl::launch_waiting_compressions() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (!idle(s) || !s.at_trigger()) continue;
    bool launched = launch_compression(s);
    // Those who share its blocks may be among the preempted: then it needs fewer targets.
    while (!launched && preempt_behind(i)) launched = launch_compression(s);
    if (!launched) ++num_blocked_;
  }
}

void SchedulerImpl::plan_rows(bool decodes) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (!idle(s) || s.decoding() != decodes || s.at_trigger()) continue;
    const int32_t wanted = s.step_end() - s.computed;
    if (wanted <= 0) {
      ++num_blocked_;  // for want of a slot
      continue;
    }
    const int32_t num_tokens = std::min(wanted, budget_);
    if (num_tokens == 0) return;
    const int32_t num_blocks = ceil_div(s.kv_length + num_tokens, options_.block_size) -
                               static_cast<int32_t>(s.table.size());
    if (num_blocks > 0) {
      if (!make_free(num_blocks, i)) {
        ++num_blocked_;
        continue;
      }
      for (int32_t k = 0; k < num_blocks; ++k) s.table.push_back(allocate_block());
    }
    plan_row(s, num_tokens);
  }
}

void SchedulerImpl::plan_row(Sequence& s, int32_t num_tokens) {
  const int32_t end = s.computed + num_tokens;
  PlannedRow row;
  row.sequence = s.spec.id;
  row.num_tokens = num_tokens;
  row.position = s.computed;
  row.kv_begin = s.kv_length;
  row.slot = s.slot;
  row.samples = end == s.num_tokens;
  if (s.updates_peak_at(end)) {
    ZIPAGE_CHECK(s.slot.valid());
    row.peak_previous_length = s.last_update;
  }
  row.table = static_cast<int32_t>(plan_.blocks.size());
  row.num_blocks = static_cast<int32_t>(s.table.size());
  plan_.blocks.insert(plan_.blocks.end(), s.table.begin(), s.table.end());
  // Decodes first, also one that was admitted after the others' prompts.
  plan_.rows.insert(s.decoding() ? plan_.rows.begin() + num_decodes_++ : plan_.rows.end(), row);
  plan_.num_tokens += num_tokens;
  budget_ -= num_tokens;
  s.in_flight = true;
  ++num_in_flight_;
}

// Nothing runs, and nothing is under way that would change it. A sequence that was just swapped in
// may be at its trigger: the next plan goes on with it.
bool SchedulerImpl::stuck() const {
  return plan_.rows.empty() && swaps_.empty() && num_in_flight_ == 0 && num_compressing_ == 0 &&
         !running_.empty();
}

void SchedulerImpl::break_deadlock() {
  ZIPAGE_CHECK_GT(running_.size(), size_t{1});
  for (const bool compressed : {false, true}) {
    for (size_t i = running_.size(); i-- > 0;) {
      if ((running_[i]->history > 0) == compressed && preempt(*running_[i])) return;
    }
  }
  check_failed(__FILE__, __LINE__,
               "every running sequence waits for a block, and none can be preempted");
}

}  // namespace zipage
