// The scheduler's state. Its member functions are spread over planning.cc, admission.cc,
// preemption.cc, commit.cc, prefix.cc and invariants.cc.
//
// Internal to schedule. Thread: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "blocks/block_pool.h"
#include "blocks/id_pool.h"
#include "blocks/prefix_index.h"
#include "schedule/load_forecast.h"
#include "schedule/scheduler.h"
#include "schedule/sequence.h"

namespace zipage {

class SchedulerImpl final : public Scheduler {
 public:
  explicit SchedulerImpl(const SchedulerOptions& options);

  Status can_ever_run(const SequenceSpec& spec) const override;
  void add(SequenceSpec spec) override;
  void abort(SequenceId id) override;
  const StepPlan& plan() override;
  std::vector<CompressJob> commit(const StepPlan& plan,
                                  std::span<const RowResult> results) override;
  void compression_done(const CompressJob& job, bool ok) override;
  bool has_unfinished() const override { return !sequences_.empty(); }
  int64_t cached_tokens(SequenceId id) const override;
  void reset_prefix_cache() override;
  SchedulerStats stats() const override;
  bool force_preempt(SequenceId id) override;
  void check_invariants() const override;

 private:
  // planning.cc: what runs in this step.
  void plan_step();
  void assign_slots();
  void launch_waiting_compressions();
  void plan_rows(bool decodes);
  void plan_row(Sequence& sequence, int32_t num_tokens);
  // Neither in a plan nor in compression: the scheduler may move it.
  bool idle(const Sequence& s) const;
  bool stuck() const;
  // The rule of the paper's section 4.4.
  void break_deadlock();

  // admission.cc: from waiting into running.
  void admit_waiting();
  bool admit(Sequence& sequence);
  bool may_take_slot(const Sequence& s) const;
  // Blocks that its compression must replace.
  int32_t num_shared(const Sequence& s) const;
  void forecast(const Sequence& s, bool with_slot, int32_t held, int32_t shared) const;
  void forecast_running() const;
  void give_slot(Sequence& sequence);
  void return_slot(Sequence& sequence);
  int32_t num_spare_blocks() const;

  // preemption.cc
  // The last one behind it that yields.
  bool preempt_behind(size_t requester);
  bool make_free(int32_t num_blocks, size_t requester);
  bool preempt(Sequence& sequence);
  bool yields_blocks(const Sequence& s) const;
  void swap_out(Sequence& sequence);
  void swap_in(Sequence& sequence);

  // commit.cc
  void advance(Sequence& sequence, const PlannedRow& row, const RowResult& result);
  // Into ready_jobs_; false: blocks are missing.
  bool launch_compression(Sequence& sequence);
  // Frees all it holds and forgets it.
  void leave(Sequence& sequence);

  // prefix.cc
  // Into hits_.
  void find_prefix(Sequence& s);
  void publish_prompt(Sequence& sequence);
  BlockId allocate_block();
  void release_blocks(std::span<const BlockId> blocks);
  void unpublish(BlockId block);

  // invariants.cc
  struct Recount;
  void recount(const Sequence& s, Recount& count) const;
  void recount_targets(const Sequence& s, Recount& count) const;
  void check_running(const Sequence& s) const;

  Sequence* find(SequenceId id) const;
  void enter_running(Sequence& sequence);
  void leave_running(Sequence& sequence);

  const SchedulerOptions options_;
  const int32_t max_running_;
  BlockPool blocks_;
  PrefixIndex prefixes_;
  SlotPool slots_;
  HostBlockPool host_blocks_;
  // N_max of every holder of a slot: they fit together, so that holders never deadlock.
  int64_t committed_blocks_ = 0;

  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  // Not started, preempted or swapped out.
  std::set<Sequence*, ServedBefore> waiting_;
  // In order of service; compressing ones too.
  std::vector<Sequence*> running_;
  uint64_t next_arrival_ = 0;
  uint64_t next_job_ = 0;

  StepPlan plan_;
  // Of the next plan.
  std::vector<SwapOp> swaps_;
  // Launched by plan(), handed out by the next commit().
  std::vector<CompressJob> ready_jobs_;
  // Scratch of admit().
  std::vector<PrefixIndex::Handle> hits_;
  mutable LoadForecast forecast_;
  // Rows of the plan.
  int32_t num_decodes_ = 0;
  // Tokens left in this step.
  int32_t budget_ = 0;
  // Rows
  int32_t num_in_flight_ = 0;
  int32_t num_compressing_ = 0;
  int32_t num_swapped_ = 0;
  // Of them, those with a slot.
  int32_t num_swapped_slots_ = 0;
  int32_t num_blocked_ = 0;
  bool preempted_in_plan_ = false;
  SchedulerStats counters_;
};

}  // namespace zipage
