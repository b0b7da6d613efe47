// Taking blocks back from sequences that run: they are swapped to host memory, or computed again
// later.
#include <algorithm>

#include "base/check.h"
#include "base/integer.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

// hybrid: those without a slot. A full KV cache needs none and gives way under either policy, as in
// vLLM. The others only when nothing else moves (break_deadlock).
bool SchedulerImpl::yields_blocks(const Sequence& s) const {
  if (!idle(s) || s.table.empty()) return false;
  return options_.scheduling == Scheduling::kHybrid ? !s.slot.valid() : !s.rules.capped();
}

bool SchedulerImpl::preempt_behind(size_t requester) {
  for (size_t i = running_.size(); i-- > requester + 1;) {
    if (yields_blocks(*running_[i]) && preempt(*running_[i])) return true;
  }
  return false;
}

bool SchedulerImpl::make_free(int32_t num_blocks, size_t requester) {
  while (blocks_.num_free() < num_blocks) {
    if (!preempt_behind(requester)) return false;
  }
  return true;
}

bool SchedulerImpl::preempt(Sequence& s) {
  if (!idle(s)) return false;
  const int32_t stored = ceil_div(s.kv_length, options_.block_size);
  const bool swaps = stored > 0 && stored <= host_blocks_.num_free() &&
                     (!s.slot.valid() || num_swapped_slots_ < options_.num_host_slots);
  if (!swaps && s.history > 0) return false;  // never computed again: it waits
  leave_running(s);
  if (swaps) {
    swap_out(s);
  } else {
    s.lost = std::max(s.lost, s.computed);
    s.computed = s.kv_length = s.last_update = 0;
    s.state = SequenceState::kWaiting;
  }
  return_slot(s);
  release_blocks(s.table);
  s.table.clear();
  waiting_.insert(&s);
  ++counters_.preemptions;
  preempted_in_plan_ = true;
  return true;
}

// The copies of a plan are made in order, before its rows: what is given back here may be handed
// out at once.
void SchedulerImpl::swap_out(Sequence& s) {
  const size_t stored = static_cast<size_t>(ceil_div(s.kv_length, options_.block_size));
  SwapOp op;
  op.sequence = s.spec.id;
  op.out = true;
  op.slot = s.slot;
  op.history = s.history;
  op.kv_len = s.kv_length;
  op.device_blocks.assign(s.table.begin(), s.table.begin() + static_cast<ptrdiff_t>(stored));
  for (size_t i = 0; i < stored; ++i) {
    s.host_blocks.push_back(host_blocks_.allocate());
    op.host_blocks.push_back(s.host_blocks.back().value());
  }
  s.swapped_slot = s.slot.valid();
  if (s.swapped_slot) ++num_swapped_slots_;
  s.state = SequenceState::kSwapped;
  ++num_swapped_;
  counters_.swapped_out_blocks += static_cast<int64_t>(stored);
  swaps_.push_back(std::move(op));
}

void SchedulerImpl::swap_in(Sequence& s) {
  SwapOp op;
  op.sequence = s.spec.id;
  op.slot = s.swapped_slot ? s.slot : SlotId();
  op.history = s.history;
  op.kv_len = s.kv_length;
  op.device_blocks.assign(s.table.begin(),
                          s.table.begin() + static_cast<ptrdiff_t>(s.host_blocks.size()));
  for (const HostBlockId block : s.host_blocks) {
    op.host_blocks.push_back(block.value());
    host_blocks_.release(block);
  }
  counters_.swapped_in_blocks += static_cast<int64_t>(s.host_blocks.size());
  s.host_blocks.clear();
  if (s.swapped_slot) --num_swapped_slots_;
  s.swapped_slot = false;
  --num_swapped_;
  s.num_published = static_cast<int32_t>(s.hashes.size());  // its blocks are its own now
  swaps_.push_back(std::move(op));
}

bool SchedulerImpl::force_preempt(SequenceId id) {
  Sequence* s = find(id);
  return s != nullptr && s->state == SequenceState::kRunning && preempt(*s);
}

}  // namespace zipage
