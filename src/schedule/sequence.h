// Sequence: one sequence as the scheduler sees it, and SequenceRules: what follows from its own
// length alone (where its steps end, when it is compressed, when F is updated, how far it gets
// without a slot). The rules never look at the load, so what a request keeps never depends on other
// requests.
//
// Internal to schedule. Thread: the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks/id_pool.h"
#include "blocks/ids.h"
#include "blocks/prefix_index.h"
#include "schedule/scheduler.h"

namespace zipage {

// Fixed when the sequence is added.
struct SequenceRules {
  SequenceRules(const SchedulerOptions& options, const SequenceSpec& spec);

  int32_t block_size = 0;
  // w
  int32_t window = 0;
  // P
  int32_t prompt_length = 0;
  // Prompt and output; the KV of the last one is never stored.
  int32_t max_tokens = 0;
  // N_max; 0: full KV.
  int32_t max_blocks = 0;
  // May be compressed; under `constrained` every capped one.
  bool needs_slot = false;
  // Keeps F from L0 on.
  bool updates_peak = false;
  // L0 of method.md 3.2.
  int32_t peak_start = 0;
  // Tokens that may be computed without a slot.
  int32_t slotless_limit = 0;
  // Tokens at the first compression.
  int32_t first_trigger = 0;
  // Last prompt tokens whose queries are read: computed whatever the prefix cache holds.
  int32_t uncached_prompt = 0;

  bool capped() const { return max_blocks > 0; }
  // Blocks held at most once the prompt is compressed, or at the end.
  int32_t final_blocks() const;
};

struct Sequence {
  Sequence(const SchedulerOptions& options, SequenceSpec spec_in, uint64_t arrival_in)
      : rules(options, spec_in),
        spec(std::move(spec_in)),
        arrival(arrival_in),
        num_tokens(rules.prompt_length) {}

  const SequenceRules rules;
  const SequenceSpec spec;
  const uint64_t arrival;
  SequenceState state = SequenceState::kWaiting;

  // Prompt and sampled.
  int32_t num_tokens;
  // Of them, those whose KV was computed: also the next position.
  int32_t computed = 0;
  // Entries stored.
  int32_t kv_length = 0;
  // Entries kept by the last compression.
  int32_t history = 0;
  // L of the last update of F; 0: none.
  int32_t last_update = 0;
  // Tokens that a preemption threw away.
  int32_t lost = 0;
  std::vector<BlockId> table;
  SlotId slot;
  // While compressing.
  CompressJob job;
  // In a plan not yet committed.
  bool in_flight = false;
  // Leaves at the commit or completion it waits for.
  bool aborted = false;

  // Of the prompt's full blocks; empty: not cached.
  std::vector<uint64_t> hashes;
  // Leading blocks of the table that need no publishing any more.
  int32_t num_published = 0;
  // Entry of the last of them.
  PrefixIndex::Handle published;
  // At the first admission.
  int64_t cached_tokens = 0;
  bool was_admitted = false;

  // While swapped.
  std::vector<HostBlockId> host_blocks;
  // Its slot went to the host too.
  bool swapped_slot = false;

  int32_t evicted() const { return computed - kv_length; }
  int32_t remaining() const { return num_tokens - computed; }
  bool decoding() const { return computed >= rules.prompt_length && remaining() == 1; }
  // Full, and to be compressed before anything else (method.md 1).
  bool at_trigger() const;
  // Tokens computed at the latest when the sequence is next compressed.
  int32_t next_trigger() const;
  // The next step computes tokens [computed, step_end()) at most.
  int32_t step_end() const;
  // Entries stored when everything known is computed, or at the trigger before.
  int32_t kv_target() const;
  // Whether F is kept up to date from L0 on. A prompt beyond the slot's entries has no F before its
  // first compression.
  bool tracks_peak() const {
    return rules.updates_peak &&
           (history > 0 || rules.prompt_length <= rules.max_blocks * rules.block_size);
  }
  // Whether F is updated by a step that ends at `end` tokens.
  bool updates_peak_at(int32_t end) const;
  bool will_be_compressed() const { return rules.max_tokens - 1 >= rules.first_trigger; }
  bool lacks_slot() const { return rules.needs_slot && !slot.valid(); }
};

// Order of service: priority, then arrival. A preempted sequence arrived before those of its
// priority that wait, so that it comes to the front of them.
struct ServedBefore {
  bool operator()(const Sequence* a, const Sequence* b) const {
    return a->spec.priority != b->spec.priority ? a->spec.priority < b->spec.priority
                                                : a->arrival < b->arrival;
  }
};

}  // namespace zipage
