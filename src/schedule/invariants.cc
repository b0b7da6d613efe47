// Counts everything again, from the sequences' side.
#include <algorithm>

#include "base/check.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

// What the sequences hold, counted anew.
struct SchedulerImpl::Recount {
  std::vector<int32_t> refs;
  int32_t slots = 0, host = 0, in_flight = 0, compressing = 0, swapped = 0, swapped_slots = 0,
          running = 0, waiting = 0;
  int64_t committed = 0;
};

void SchedulerImpl::check_invariants() const {
  blocks_.check_invariants();
  prefixes_.check_invariants();
  Recount count;
  count.refs.resize(static_cast<size_t>(options_.num_blocks), 0);
  for (const auto& [id, owned] : sequences_) {
    ZIPAGE_CHECK_EQ(id, owned->spec.id);
    recount(*owned, count);
  }
  for (int32_t i = 0; i < options_.num_blocks; ++i) {
    const BlockId block(i);
    ZIPAGE_CHECK_EQ(count.refs[static_cast<size_t>(i)], blocks_.ref_count(block));
    if (options_.enable_prefix_caching)
      ZIPAGE_CHECK_EQ(blocks_.cached(block), prefixes_.contains(block));
  }
  ZIPAGE_CHECK_EQ(count.slots, slots_.size() - slots_.num_free());
  ZIPAGE_CHECK_EQ(count.host, host_blocks_.size() - host_blocks_.num_free());
  ZIPAGE_CHECK_EQ(count.in_flight, num_in_flight_);
  ZIPAGE_CHECK_EQ(count.compressing, num_compressing_);
  ZIPAGE_CHECK_EQ(count.swapped, num_swapped_);
  ZIPAGE_CHECK_EQ(count.swapped_slots, num_swapped_slots_);
  ZIPAGE_CHECK_LE(count.swapped_slots, options_.num_host_slots);
  ZIPAGE_CHECK_EQ(count.committed, committed_blocks_);
  ZIPAGE_CHECK_LE(count.committed, static_cast<int64_t>(options_.num_blocks));
  ZIPAGE_CHECK_EQ(static_cast<size_t>(count.running), running_.size());
  ZIPAGE_CHECK_EQ(static_cast<size_t>(count.waiting), waiting_.size());
  ZIPAGE_CHECK_LE(count.running, max_running_);
  ZIPAGE_CHECK(std::is_sorted(running_.begin(), running_.end(), ServedBefore()));
  if (options_.scheduling == Scheduling::kConstrained) {
    // Concurrency never exceeds M.
    for (const Sequence* s : running_) ZIPAGE_CHECK(!s->lacks_slot());
  }
}

// Adds what `s` holds, and checks its own state.
void SchedulerImpl::recount(const Sequence& s, Recount& count) const {
  for (const BlockId block : s.table) ++count.refs.at(static_cast<size_t>(block.value()));
  if (s.slot.valid()) {
    ++count.slots;
    count.committed += s.rules.final_blocks();
    ZIPAGE_CHECK(slots_.taken(s.slot));
  }
  for (const HostBlockId block : s.host_blocks) ZIPAGE_CHECK(host_blocks_.taken(block));
  count.host += static_cast<int32_t>(s.host_blocks.size());
  count.in_flight += s.in_flight ? 1 : 0;
  ZIPAGE_CHECK_LE(s.computed, s.num_tokens);
  ZIPAGE_CHECK_LE(s.kv_length, s.computed);
  if (s.state == SequenceState::kWaiting || s.state == SequenceState::kSwapped) {
    ++count.waiting;
    ZIPAGE_CHECK(waiting_.count(const_cast<Sequence*>(&s)) == 1 && s.table.empty());
    ZIPAGE_CHECK(!s.slot.valid() && !s.in_flight && !s.aborted);
  } else {
    ++count.running;
    check_running(s);
  }
  switch (s.state) {
    case SequenceState::kWaiting:
      ZIPAGE_CHECK(s.host_blocks.empty());
      ZIPAGE_CHECK_EQ(s.kv_length, 0);
      // A compressed sequence is never computed again.
      ZIPAGE_CHECK_EQ(s.history, 0);
      break;
    case SequenceState::kSwapped:
      ++count.swapped;
      count.swapped_slots += s.swapped_slot ? 1 : 0;
      ZIPAGE_CHECK(!s.host_blocks.empty());
      break;
    case SequenceState::kCompressing:
      ++count.compressing;
      recount_targets(s, count);
      break;
    case SequenceState::kRunning:
      break;
  }
}

void SchedulerImpl::check_running(const Sequence& s) const {
  ZIPAGE_CHECK(s.host_blocks.empty());
  ZIPAGE_CHECK(std::find(running_.begin(), running_.end(), &s) != running_.end());
  ZIPAGE_CHECK_GE(static_cast<int64_t>(s.table.size()) * options_.block_size, s.kv_length);
  if (s.lacks_slot()) ZIPAGE_CHECK_LE(s.computed, s.rules.slotless_limit);
  if (s.history > 0) {
    ZIPAGE_CHECK(s.slot.valid());
    ZIPAGE_CHECK_LE(static_cast<int32_t>(s.table.size()), s.rules.max_blocks);
  }
}

// Target blocks of a compression: new ones, or the sequence's own where nobody else reads them.
void SchedulerImpl::recount_targets(const Sequence& s, Recount& count) const {
  ZIPAGE_CHECK(!s.in_flight && s.slot.valid());
  for (size_t i = 0; i < s.job.target.size(); ++i) {
    if (s.job.target[i] != s.table.at(i)) {
      ++count.refs.at(static_cast<size_t>(s.job.target[i].value()));
    } else {
      ZIPAGE_CHECK_EQ(blocks_.ref_count(s.table[i]), 1);
    }
    ZIPAGE_CHECK(!blocks_.cached(s.job.target[i]));
  }
}

}  // namespace zipage
