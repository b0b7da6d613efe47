// Log-probabilities of prompt tokens (SamplingParams::prompt_logprobs). After a step's forward pass
// the hidden states of its prompt tokens go through the lm_head in slices of the step's logits
// rows, and the sampler looks up the token that follows each. A step without such a prompt costs
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "engine/batch_builder.h"
#include "engine/sample_layout.h"
#include "engine/sequence.h"
#include "model/decoder.h"
#include "schedule/step_plan.h"

namespace zipage {

struct ScorerLimits {
  int32_t max_tokens = 0;    // a step
  int32_t max_logits = 0;    // rows of Decoder::logits()
  int32_t max_logprobs = 0;  // alternatives a token
  int32_t vocab = 0;
};

// Tokens of a planned row whose logits are wanted: [first, first + count) of the sequence. Those
// scored before a preemption are not scored again.
struct ScoredRange {
  int32_t first = 0, count = 0;
};
ScoredRange scored_range(const PlannedRow& row, const EngineSequence& sequence);

// Owns its host and device arrays, of the size of the longest step. Thread: the engine's.
class PromptScorer {
 public:
  PromptScorer(Backend& backend, Decoder& decoder, const ScorerLimits& limits);

  // Enqueues the scores of the step that forward() has just been enqueued for; `logits()` is free
  // to be overwritten. Returns the number of tokens scored.
  int32_t run(int ticket,
              const StepPlan& plan,
              const SequenceTable& sequences,
              void* sample_workspace,
              Stream& stream);
  // Of that step, in the order of the plan's rows; once its work is done.
  StepSamples scores(int ticket) const;
  // Host time of the sampler where ops run at once.
  double sample_seconds() const { return sample_seconds_; }
  static size_t bytes(const ScorerLimits& limits);

 private:
  struct Side {
    Buffer inputs;   // host: SampleRow [max_tokens], then token indices [max_tokens]
    Buffer outputs;  // host: a SampleLayout of the step's rows
    int32_t num_rows = 0, max_logprobs = 0;
  };
  void fill(Side& side, const StepPlan& plan, const SequenceTable& sequences) const;

  Backend& backend_;
  Decoder& decoder_;
  const ScorerLimits limits_;
  std::array<Side, 2> sides_;  // by ticket
  Buffer device_inputs_, device_outputs_;
  double sample_seconds_ = 0;
};

}  // namespace zipage
