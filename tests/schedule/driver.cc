#include "schedule/driver.h"

#include <algorithm>

#include "base/check.h"

namespace zipage::testing {

void Driver::add(SequenceSpec spec, int32_t num_output) {
  Live live;
  live.prompt = live.num_tokens = static_cast<int32_t>(spec.prompt.size());
  live.output = num_output;
  live.kv_budget = spec.kv_budget;
  live.policy = spec.kv_policy;
  live_[spec.id] = live;
  trajectories_[spec.id];
  scheduler_->add(std::move(spec));
  scheduler_->check_invariants();
}

void Driver::abort(SequenceId id) {
  scheduler_->abort(id);
  if (live_.erase(id) > 0) aborted_.insert(id);
  scheduler_->check_invariants();
}

void Driver::step(bool sync) {
  plan();
  commit_plan();
  while (sync && !jobs_.empty()) complete(0);
}

const StepPlan& Driver::plan() {
  const bool quiet = plans_.empty() && jobs_.empty();
  const StepPlan& planned = scheduler_->plan();
  scheduler_->check_invariants();
  for (const SwapOp& op : planned.swaps) {
    ZIPAGE_CHECK_EQ(op.device_blocks.size(), op.host_blocks.size());
    const auto found = live_.find(op.sequence);
    ZIPAGE_CHECK(found != live_.end());
    Live& s = found->second;
    ZIPAGE_CHECK_EQ(s.swapped, !op.out);
    ZIPAGE_CHECK_EQ(op.kv_len, s.kv_length);
    ZIPAGE_CHECK_EQ(s.evicted > 0, op.history > 0);
    if (op.out) {
      ZIPAGE_CHECK(op.history == 0 || op.slot.valid());
      for (size_t i = 0; i < op.device_blocks.size(); ++i)
        ZIPAGE_CHECK(op.device_blocks[i] == s.blocks.at(i));
    }
    ZIPAGE_CHECK_EQ(s.slot.valid(), op.slot.valid());
    s.slot = op.slot;
    s.swapped = op.out;
  }
  int32_t total = 0;
  bool prefilled = false;
  std::set<SequenceId> seen;
  for (const PlannedRow& row : planned.rows) {
    ZIPAGE_CHECK(seen.insert(row.sequence).second);
    check_row(planned, row);
    total += row.num_tokens;
    const auto found = live_.find(row.sequence);
    const bool decode = found != live_.end() && row.position >= found->second.prompt &&
                        row.num_tokens == 1 && row.samples;
    ZIPAGE_CHECK(!decode || !prefilled);  // decodes first
    prefilled = prefilled || !decode;
  }
  ZIPAGE_CHECK_EQ(total, planned.num_tokens);
  ZIPAGE_CHECK_LE(total, options_.max_num_batched_tokens);
  check_no_overlap(planned);
  plans_.push_back(planned);
  spinning_ = quiet && planned.empty() && scheduler_->has_unfinished();
  return planned;
}

void Driver::check_row(const StepPlan& plan, const PlannedRow& row) {
  const auto found = live_.find(row.sequence);
  ZIPAGE_CHECK(found != live_.end());
  Live& s = found->second;
  Trajectory& trajectory = trajectories_[row.sequence];
  const int32_t b = options_.block_size, w = options_.compression.window_size;
  ZIPAGE_CHECK(!s.swapped);
  ZIPAGE_CHECK_GT(row.num_tokens, 0);
  if (row.position != s.computed) {  // a restart, perhaps with cached blocks
    ZIPAGE_CHECK_EQ(s.evicted, 0);
    ZIPAGE_CHECK(row.position % b == 0 && row.position == row.kv_begin && row.position <= s.prompt);
    s.computed = s.kv_length = s.queries_from = row.position;
    s.slot = SlotId();
    trajectory.updates.clear();
  }
  ZIPAGE_CHECK_EQ(row.kv_begin, s.kv_length);
  const int32_t end = row.position + row.num_tokens;
  ZIPAGE_CHECK_LE(end, s.num_tokens);
  ZIPAGE_CHECK_EQ(row.samples, end == s.num_tokens);
  ZIPAGE_CHECK_GE(row.num_blocks * b, s.kv_length + row.num_tokens);
  s.blocks.assign(plan.blocks.begin() + row.table,
                  plan.blocks.begin() + row.table + row.num_blocks);
  if (s.slot != row.slot) {
    if (s.slot.valid()) {  // lost by a preemption: then everything started again
      ZIPAGE_CHECK_EQ(row.position, s.queries_from);
    }
    s.slot = row.slot;
    s.queries_from = s.computed;
  }
  if (s.kv_budget != kFullKv && s.computed >= s.prompt) {
    const int32_t n_max = static_cast<int32_t>(s.kv_budget / b) + 1;
    ZIPAGE_CHECK(s.kv_length % b != 0 ||
                 s.kv_length < n_max * b);  // nothing is computed past a trigger
    const int32_t most = std::max(n_max * b, (s.prompt + b - 1) / b * b);
    ZIPAGE_CHECK_LE(s.kv_length + row.num_tokens, most);
  }
  if (row.peak_previous_length >= 0) {
    ZIPAGE_CHECK(row.slot.valid());
    const int32_t window_begin = std::max(0, end - w);
    ZIPAGE_CHECK_LE(s.queries_from, window_begin);  // the window is in the slot
    trajectory.updates.emplace_back(end, row.peak_previous_length);
  }
}

// Blocks that this step writes belong to one row only.
void Driver::check_no_overlap(const StepPlan& plan) const {
  std::map<int32_t, int> users;
  for (const PlannedRow& row : plan.rows) {
    for (int32_t i = 0; i < row.num_blocks; ++i)
      ++users[plan.blocks[static_cast<size_t>(row.table + i)].value()];
  }
  for (const PlannedRow& row : plan.rows) {
    const int32_t b = options_.block_size;
    for (int32_t i = row.kv_begin / b; i <= (row.kv_begin + row.num_tokens - 1) / b; ++i) {
      ZIPAGE_CHECK_EQ(users[plan.blocks[static_cast<size_t>(row.table + i)].value()], 1);
    }
  }
}

size_t Driver::commit_plan() {
  ZIPAGE_CHECK(!plans_.empty());
  const StepPlan plan = std::move(plans_.front());
  plans_.pop_front();
  std::vector<RowResult> results;
  for (const PlannedRow& row : plan.rows) {
    RowResult result;
    const auto found = live_.find(row.sequence);
    if (found == live_.end()) {  // aborted meanwhile
      result.sampled = row.samples;
      results.push_back(result);
      continue;
    }
    Live& s = found->second;
    s.computed += row.num_tokens;
    s.kv_length += row.num_tokens;
    if (row.samples) {
      result.sampled = true;
      result.token = 1;
      ++s.num_tokens;
      if (s.num_tokens == s.prompt + s.output) {
        result.finished = true;
        finished_.insert(row.sequence);
        live_.erase(found);
      }
    }
    results.push_back(result);
  }
  std::vector<CompressJob> jobs = scheduler_->commit(plan, results);
  scheduler_->check_invariants();
  if (!jobs.empty()) spinning_ = false;
  for (CompressJob& job : jobs) {
    Live& s = live_.at(job.sequence);
    const int32_t w = options_.compression.window_size;
    ZIPAGE_CHECK_EQ(job.length, s.kv_length);
    ZIPAGE_CHECK_EQ(job.position_offset, s.evicted);
    ZIPAGE_CHECK_EQ(job.slot.value(), s.slot.value());
    ZIPAGE_CHECK_LE(s.queries_from, s.computed - w);
    ZIPAGE_CHECK_EQ(job.target.size(), static_cast<size_t>(job.max_blocks - 1));
    ZIPAGE_CHECK_EQ(job.source.size() * static_cast<size_t>(options_.block_size),
                    static_cast<size_t>(job.length));
    trajectories_[job.sequence].compressions.emplace_back(job.length, job.keep, job.history,
                                                          job.position_offset);
    jobs_.push_back(std::move(job));
  }
  return jobs.size();
}

void Driver::complete(size_t index, bool ok) {
  const CompressJob job = jobs_.at(index);
  jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(index));
  scheduler_->compression_done(job, ok);
  scheduler_->check_invariants();
  const auto found = live_.find(job.sequence);
  if (found == live_.end()) return;
  if (!ok) {
    failed_.insert(job.sequence);
    live_.erase(found);
    return;
  }
  Live& s = found->second;
  s.evicted += s.kv_length - job.keep;
  s.kv_length = job.keep;
  s.blocks = job.target;
}

}  // namespace zipage::testing
