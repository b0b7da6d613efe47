// Scheduler: decides which sequences compute how many tokens in a step (method.md 1, 4, 5). Pure:
// no tensor, no backend, no clock of its own.
//
//   const StepPlan& plan = scheduler->plan();
//   ... compute plan.rows ...
//   for (CompressJob& job : scheduler->commit(plan, results)) launch(job);
//   ... later, when a job's blocks are in place or it failed ...
//   scheduler->compression_done(job, ok);
//
// plan() returns the rows to compute; its result is valid until the next plan(). commit() appends
// sampled tokens, ends sequences, publishes prompt blocks, and returns the compressions to launch.
// A sequence in compression takes no part in plans until compression_done().
//
// Every plan is committed, the empty one too: the next commit() returns a compression that had to
// wait for target blocks. Several plans may be in flight; plan() leaves out the sequences of those.
// When plan() is empty and commit() returns nothing, only a compression in flight or a new sequence
// can change that.
//
// Thread: the engine's.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zipage/options.h"
#include "zipage/status.h"

#include "blocks/ids.h"
#include "schedule/step_plan.h"

namespace zipage {

struct SchedulerOptions {
  Scheduling scheduling = Scheduling::kHybrid;
  // N_total
  int32_t num_blocks = 0;
  // b
  int32_t block_size = 256;
  // M
  int32_t max_query_slots = 0;
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 2048;
  int64_t max_model_len = 0;
  // Largest N_max a request may ask for: sizes of a slot; 0: only full KV.
  int32_t max_blocks_per_seq = 0;
  // Swap space.
  int32_t num_host_blocks = 0;
  // Sequences with a slot that may be swapped out.
  int32_t num_host_slots = std::numeric_limits<int32_t>::max();
  bool enable_prefix_caching = true;
  // Admission looks ahead; false: whatever fits now comes in (measurements, tests).
  bool watermark = true;
  // As the user gave them: sequences may have other policies, each with its own defaults.
  CompressionOptions compression;
};

struct SequenceSpec {
  SequenceId id = 0;
  // Token ids, for prefix hashes.
  std::vector<int32_t> prompt;
  // The same of sequences that share a prompt; used instead when it is set.
  std::shared_ptr<const std::vector<int32_t>> shared_prompt;
  // Only the prompt is to be computed: the one token that ends it is thrown away, so that the prompt
  // may fill the whole of max_model_len.
  bool prompt_only = false;
  // The caller finishes the sequence by then; <= 0: up to max_model_len.
  int64_t max_new_tokens = 0;
  int64_t kv_budget = kFullKv;
  KvPolicy kv_policy = KvPolicy::kPeak;
  // Smaller first; then arrival.
  int32_t priority = 0;
  // Salt, later a LoRA id.
  std::vector<std::string> hash_keys;
  // false: every prompt token is computed; its blocks are published all the same.
  bool reads_prefix_cache = true;

  const std::vector<int32_t>& prompt_tokens() const {
    return shared_prompt != nullptr ? *shared_prompt : prompt;
  }
};

// What became of one row.
struct RowResult {
  // A token was appended to the sequence.
  bool sampled = false;
  // That token.
  int32_t token = 0;
  // Stop condition met: the sequence leaves.
  bool finished = false;
};

enum class SequenceState { kWaiting, kRunning, kCompressing, kSwapped };

struct SchedulerStats {
  int64_t num_waiting = 0, num_running = 0, num_compressing = 0, num_swapped = 0, num_blocked = 0;
  // cached: free, with reusable contents.
  int64_t num_free_blocks = 0, num_cached_blocks = 0;
  int64_t num_used_slots = 0;
  int64_t preemptions = 0, recomputed_tokens = 0, compressions = 0, evicted_tokens = 0;
  // In tokens.
  int64_t prefix_queries = 0, prefix_hits = 0;
  int64_t swapped_out_blocks = 0, swapped_in_blocks = 0, blocked_steps = 0;
};

class Scheduler {
 public:
  static std::unique_ptr<Scheduler> create(const SchedulerOptions& options);
  virtual ~Scheduler() = default;

  // Why the sequence could never run (prompt too long, pool too small, protection above the
  // budget), or ok.
  virtual Status can_ever_run(const SequenceSpec& spec) const = 0;
  virtual void add(SequenceSpec spec) = 0;
  // Takes a sequence out at any moment, also while it is in a plan in flight or in compression: its
  // blocks return when those are over. Unknown ids are ignored.
  virtual void abort(SequenceId id) = 0;

  virtual const StepPlan& plan() = 0;
  // results[i] belongs to plan.rows[i]. Returns the compressions to launch now.
  virtual std::vector<CompressJob> commit(const StepPlan& plan,
                                          std::span<const RowResult> results) = 0;
  // ok: the table becomes the targets, the other blocks return to the pool. Otherwise the sequence
  // is dropped; telling its owner is the caller's part.
  virtual void compression_done(const CompressJob& job, bool ok) = 0;

  virtual bool has_unfinished() const = 0;
  // Prompt tokens taken from the prefix cache at admission.
  virtual int64_t cached_tokens(SequenceId id) const = 0;
  virtual void reset_prefix_cache() = 0;
  virtual SchedulerStats stats() const = 0;
  // For tests: preempts a running sequence as if a block could not be had. False if it cannot be.
  virtual bool force_preempt(SequenceId id) = 0;
  // Throws CheckFailure when reference counts, tables, slots and lists disagree.
  virtual void check_invariants() const = 0;
};

}  // namespace zipage
