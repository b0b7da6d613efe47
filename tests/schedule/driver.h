// A stand-in for the engine: computes the plans of a scheduler without tensors, checks every row
// against the rules, and records what a sequence's kept set depends on.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "schedule/scheduler.h"

namespace zipage::testing {

// What decides which entries of a sequence survive: must not depend on load.
struct Trajectory {
  // n, keep, history, position_offset of each.
  std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> compressions;
  // L and L' of F's updates since the last (re)start, in order.
  std::vector<std::pair<int32_t, int32_t>> updates;
  bool operator==(const Trajectory&) const = default;
};

class Driver {
 public:
  explicit Driver(const SchedulerOptions& options)
      : options_(options), scheduler_(Scheduler::create(options)) {}

  // The sequence finishes after num_output tokens.
  void add(SequenceSpec spec, int32_t num_output);
  void abort(SequenceId id);

  // plan() and commit(), at once. Compressions stay open until complete() unless `sync`.
  void step(bool sync = true);
  // plan() alone; commit_plan() commits the oldest plan in flight.
  const StepPlan& plan();
  size_t commit_plan();  // how many jobs it added to jobs()
  void complete(size_t index, bool ok = true);

  bool finished(SequenceId id) const { return finished_.count(id) > 0; }
  bool failed(SequenceId id) const { return failed_.count(id) > 0; }
  size_t num_open_jobs() const { return jobs_.size(); }
  const std::vector<CompressJob>& jobs() const { return jobs_; }
  size_t num_plans() const { return plans_.size(); }
  const Trajectory& trajectory(SequenceId id) const { return trajectories_.at(id); }
  Scheduler& scheduler() { return *scheduler_; }
  const SchedulerOptions& options() const { return options_; }
  // Steps without any progress: nothing planned, launched or in flight while something is
  // unfinished.
  bool spinning() const { return spinning_; }

 private:
  struct Live {
    int32_t prompt = 0, output = 0;
    int32_t num_tokens = 0;  // known
    int32_t computed = 0, kv_length = 0, evicted = 0;
    // The slot holds the queries of [queries_from, computed), as far as a ring of w goes.
    int32_t queries_from = 0;
    SlotId slot;
    int64_t kv_budget = 0;
    KvPolicy policy = KvPolicy::kPeak;
    bool swapped = false;
    std::vector<BlockId> blocks;  // of the last row
  };
  void check_row(const StepPlan& plan, const PlannedRow& row);
  void check_no_overlap(const StepPlan& plan) const;

  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<SequenceId, Live> live_;
  std::map<SequenceId, Trajectory> trajectories_;
  std::set<SequenceId> finished_, failed_, aborted_;
  std::deque<StepPlan> plans_;
  std::vector<CompressJob> jobs_;
  bool spinning_ = false;
};

}  // namespace zipage::testing
