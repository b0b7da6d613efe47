// Counts everything again, from the sequences' side.
#include <algorithm>

#include "base/check.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

void SchedulerImpl::check_invariants() const {
  blocks_.check_invariants();
  prefixes_.check_invariants();
  std::vector<int32_t> refs(static_cast<size_t>(options_.num_blocks), 0);
  int32_t slots = 0, host = 0, in_flight = 0, compressing = 0, swapped = 0, swapped_slots = 0,
          running = 0, waiting = 0;
  int64_t committed = 0;
  for (const auto& [id, owned] : sequences_) {
    const Sequence& s = *owned;
    ZIPAGE_CHECK_EQ(id, s.spec.id);
    for (const BlockId block : s.table) ++refs.at(static_cast<size_t>(block.value()));
    if (s.slot.valid()) {
      ++slots;
      committed += s.rules.final_blocks();
      ZIPAGE_CHECK(slots_.taken(s.slot));
    }
    for (const HostBlockId block : s.host_blocks) ZIPAGE_CHECK(host_blocks_.taken(block));
    host += static_cast<int32_t>(s.host_blocks.size());
    in_flight += s.in_flight ? 1 : 0;
    ZIPAGE_CHECK_LE(s.computed, s.num_tokens);
    ZIPAGE_CHECK_LE(s.kv_length, s.computed);
    switch (s.state) {
      case SequenceState::kWaiting:
        ++waiting;
        ZIPAGE_CHECK(waiting_.count(owned.get()) == 1 && s.table.empty() && s.host_blocks.empty());
        ZIPAGE_CHECK(!s.slot.valid() && !s.in_flight && !s.aborted);
        ZIPAGE_CHECK_EQ(s.kv_length, 0);
        ZIPAGE_CHECK_EQ(s.history, 0);  // a compressed sequence is never computed again
        break;
      case SequenceState::kSwapped:
        ++waiting;
        ++swapped;
        swapped_slots += s.swapped_slot ? 1 : 0;
        ZIPAGE_CHECK(waiting_.count(owned.get()) == 1 && s.table.empty() && !s.host_blocks.empty());
        ZIPAGE_CHECK(!s.slot.valid() && !s.in_flight && !s.aborted);
        break;
      case SequenceState::kCompressing:
        ++compressing;
        ZIPAGE_CHECK(!s.in_flight && s.slot.valid());
        for (size_t i = 0; i < s.job.target.size(); ++i) {
          if (s.job.target[i] != s.table.at(i)) {
            ++refs.at(static_cast<size_t>(s.job.target[i].value()));
          } else {
            ZIPAGE_CHECK_EQ(blocks_.ref_count(s.table[i]), 1);  // written in place
          }
          ZIPAGE_CHECK(!blocks_.cached(s.job.target[i]));
        }
        [[fallthrough]];
      case SequenceState::kRunning:
        ++running;
        ZIPAGE_CHECK(s.host_blocks.empty());
        ZIPAGE_CHECK(std::find(running_.begin(), running_.end(), owned.get()) != running_.end());
        ZIPAGE_CHECK_GE(static_cast<int64_t>(s.table.size()) * options_.block_size, s.kv_length);
        if (s.lacks_slot()) ZIPAGE_CHECK_LE(s.computed, s.rules.slotless_limit);
        if (s.history > 0) {
          ZIPAGE_CHECK(s.slot.valid());
          ZIPAGE_CHECK_LE(static_cast<int32_t>(s.table.size()), s.rules.max_blocks);
        }
        break;
    }
  }
  for (int32_t i = 0; i < options_.num_blocks; ++i) {
    const BlockId block(i);
    ZIPAGE_CHECK_EQ(refs[static_cast<size_t>(i)], blocks_.ref_count(block));
    if (options_.enable_prefix_caching)
      ZIPAGE_CHECK_EQ(blocks_.cached(block), prefixes_.contains(block));
  }
  ZIPAGE_CHECK_EQ(slots, slots_.size() - slots_.num_free());
  ZIPAGE_CHECK_EQ(host, host_blocks_.size() - host_blocks_.num_free());
  ZIPAGE_CHECK_EQ(in_flight, num_in_flight_);
  ZIPAGE_CHECK_EQ(compressing, num_compressing_);
  ZIPAGE_CHECK_EQ(swapped, num_swapped_);
  ZIPAGE_CHECK_EQ(swapped_slots, num_swapped_slots_);
  ZIPAGE_CHECK_LE(swapped_slots, options_.num_host_slots);
  ZIPAGE_CHECK_EQ(committed, committed_blocks_);
  ZIPAGE_CHECK_LE(committed, static_cast<int64_t>(options_.num_blocks));
  ZIPAGE_CHECK_EQ(static_cast<size_t>(running), running_.size());
  ZIPAGE_CHECK_EQ(static_cast<size_t>(waiting), waiting_.size());
  ZIPAGE_CHECK_LE(running, max_running_);
  ZIPAGE_CHECK(std::is_sorted(running_.begin(), running_.end(), ServedBefore()));
  if (options_.scheduling == Scheduling::kConstrained) {
    for (const Sequence* s : running_)
      ZIPAGE_CHECK(!s->lacks_slot());  // concurrency never exceeds M
  }
}

}  // namespace zipage
