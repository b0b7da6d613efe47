// What follows from the rows that were computed, and from the compressions that ended.
#include <algorithm>

#include "base/check.h"
#include "blocks/compaction_plan.h"
#include "schedule/scheduler_impl.h"

namespace zipage {

std::vector<CompressJob> SchedulerImpl::commit(const StepPlan& plan,
                                               std::span<const RowResult> results) {
  ZIPAGE_CHECK_EQ(plan.rows.size(), results.size());
  int32_t num_finished = 0;
  const int32_t free_before = blocks_.num_free();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Sequence* s = find(plan.rows[i].sequence);
    ZIPAGE_CHECK(s != nullptr && s->in_flight);
    --num_in_flight_;
    s->in_flight = false;
    if (s->aborted) {
      leave(*s);
      continue;
    }
    advance(*s, plan.rows[i], results[i]);
    if (results[i].finished) {
      leave(*s);
      ++num_finished;
    }
  }
  if (!plan.rows.empty()) {
    forecast_.computed(plan.num_tokens);
    forecast_.step(num_finished, num_finished > 0 ? blocks_.num_free() - free_before : 0);
  }
  for (const PlannedRow& row : plan.rows) {
    Sequence* s = find(row.sequence);
    // Without room for the targets it waits: plan() tries again, and may preempt for it.
    if (s != nullptr && idle(*s) && s->at_trigger()) launch_compression(*s);
  }
  std::vector<CompressJob> jobs;
  jobs.swap(ready_jobs_);
  return jobs;
}

void SchedulerImpl::advance(Sequence& s, const PlannedRow& row, const RowResult& result) {
  ZIPAGE_CHECK_EQ(row.position, s.computed);
  s.computed += row.num_tokens;
  s.kv_length += row.num_tokens;
  if (row.peak_previous_length >= 0) s.last_update = s.computed;
  publish_prompt(s);
  if (result.sampled) {
    ZIPAGE_CHECK(row.samples);
    ++s.num_tokens;
    ZIPAGE_CHECK(result.finished || s.num_tokens < s.rules.max_tokens);
  } else {
    ZIPAGE_CHECK(!row.samples || result.finished);
  }
}

bool SchedulerImpl::launch_compression(Sequence& s) {
  ZIPAGE_CHECK(s.slot.valid());
  if (s.tracks_peak()) ZIPAGE_CHECK_EQ(s.last_update, s.computed);
  const int32_t num_targets = s.rules.max_blocks - 1;
  const bool may_share = options_.enable_prefix_caching && s.history == 0;
  const CompactionPlan plan =
      plan_compaction(blocks_, s.table, num_targets, may_share ? num_spare_blocks() : 0);
  if (plan.num_new > blocks_.num_free()) return false;
  CompressJob job;
  job.sequence = s.spec.id;
  job.job_id = next_job_++;
  job.slot = s.slot;
  job.policy = s.spec.kv_policy;
  job.length = s.kv_length;
  job.keep = num_targets * options_.block_size;
  job.history = s.history;
  job.position_offset = s.evicted();
  job.prompt_length = s.rules.prompt_length;
  job.max_blocks = s.rules.max_blocks;
  job.source = s.table;
  job.target.reserve(static_cast<size_t>(num_targets));
  for (int32_t i = 0; i < num_targets; ++i) {
    const BlockId own = s.table[static_cast<size_t>(i)];
    if (is_replaced(blocks_, plan, own)) {
      job.target.push_back(allocate_block());
    } else {
      unpublish(own);  // its contents change
      job.target.push_back(own);
    }
  }
  s.state = SequenceState::kCompressing;
  ++num_compressing_;
  s.job = job;
  ready_jobs_.push_back(std::move(job));
  return true;
}

void SchedulerImpl::compression_done(const CompressJob& job, bool ok) {
  Sequence* s = find(job.sequence);
  ZIPAGE_CHECK(s != nullptr && s->state == SequenceState::kCompressing);
  ZIPAGE_CHECK_EQ(s->job.job_id, job.job_id);
  if (!ok || s->aborted) {
    leave(*s);
    return;
  }
  const std::vector<BlockId>& target = s->job.target;
  for (size_t i = s->table.size(); i-- > 0;) {
    if (i >= target.size() || target[i] != s->table[i]) blocks_.release(s->table[i]);
  }
  s->table.assign(target.begin(), target.end());
  counters_.evicted_tokens += s->kv_length - s->job.keep;
  ++counters_.compressions;
  s->kv_length = s->history = s->job.keep;
  // A prompt beyond the slot's entries got its F from this compression.
  if (s->rules.updates_peak) s->last_update = s->computed;
  s->num_published = static_cast<int32_t>(s->hashes.size());
  s->state = SequenceState::kRunning;
  --num_compressing_;
}

void SchedulerImpl::leave(Sequence& s) {
  switch (s.state) {
    case SequenceState::kCompressing:
      for (size_t i = 0; i < s.job.target.size(); ++i) {
        if (s.job.target[i] != s.table[i]) blocks_.release(s.job.target[i]);
      }
      --num_compressing_;
      leave_running(s);
      break;
    case SequenceState::kRunning:
      leave_running(s);
      break;
    case SequenceState::kSwapped:
      for (const HostBlockId block : s.host_blocks) host_blocks_.release(block);
      --num_swapped_;
      if (s.swapped_slot) --num_swapped_slots_;
      waiting_.erase(&s);
      break;
    case SequenceState::kWaiting:
      waiting_.erase(&s);
      break;
  }
  std::erase_if(swaps_, [&](const SwapOp& op) { return op.sequence == s.spec.id; });
  return_slot(s);
  release_blocks(s.table);
  sequences_.erase(SequenceId{s.spec.id});
}

}  // namespace zipage
