#include "engine/prompt_scorer.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace zipage {
namespace {

size_t input_rows_bytes(const ScorerLimits& l) {
  return sizeof(SampleRow) * static_cast<size_t>(l.max_tokens);
}
size_t input_bytes(const ScorerLimits& l) {
  return input_rows_bytes(l) + sizeof(int32_t) * static_cast<size_t>(l.max_tokens);
}
size_t output_bytes(const ScorerLimits& l) {
  return static_cast<size_t>(SampleLayout(l.max_tokens, l.max_logprobs).total_bytes);
}

}  // namespace

ScoredRange scored_range(const PlannedRow& row, const EngineSequence& sequence) {
  if (!sequence.scores) return {};
  // The last prompt token's logits are the first sample's.
  const int32_t first = std::max(row.position, sequence.scores->num_launched);
  const int32_t end = std::min(row.position + row.num_tokens, sequence.num_prompt_tokens - 1);
  return {first, std::max(0, end - first)};
}

size_t PromptScorer::bytes(const ScorerLimits& limits) {
  return input_bytes(limits) + output_bytes(limits);
}

PromptScorer::PromptScorer(Backend& backend, Decoder& decoder, const ScorerLimits& limits)
    : backend_(backend),
      decoder_(decoder),
      limits_(limits),
      device_inputs_(backend.allocate(input_bytes(limits), MemorySpace::kDevice)),
      device_outputs_(backend.allocate(output_bytes(limits), MemorySpace::kDevice)) {
  for (Side& side : sides_) {
    side.inputs = backend.allocate(input_bytes(limits), MemorySpace::kHost);
    side.outputs = backend.allocate(output_bytes(limits), MemorySpace::kHost);
  }
}

void PromptScorer::fill(Side& side, const StepPlan& plan, const SequenceTable& sequences) const {
  side.num_rows = side.max_logprobs = 0;
  auto* rows = side.inputs.as<SampleRow>();
  auto* tokens = reinterpret_cast<int32_t*>(side.inputs.data() + input_rows_bytes(limits_));
  int32_t row_begin = 0;  // in the batch
  for (const PlannedRow& row : plan.rows) {
    const EngineSequence& sequence = *sequences.at(row.sequence);
    const ScoredRange range = scored_range(row, sequence);
    if (range.count > 0) {
      // Steps come in the order of the prompt, and nothing of it is taken from the prefix cache.
      ZIPAGE_CHECK_EQ(range.first, sequence.scores->num_launched);
      ZIPAGE_CHECK_LE(side.num_rows + range.count, limits_.max_tokens);
      side.max_logprobs = std::max(side.max_logprobs, sequence.scores->num_alternatives);
    }
    for (int32_t i = range.first; i < range.first + range.count; ++i) {
      SampleRow choice;
      choice.num_logprobs = sequence.scores->num_alternatives;
      choice.given_token = sequence.tokens[static_cast<size_t>(i) + 1];
      rows[side.num_rows] = choice;
      tokens[side.num_rows++] = row_begin + i - row.position;
    }
    row_begin += row.num_tokens;
  }
}

int32_t PromptScorer::run(int ticket,
                          const StepPlan& plan,
                          const SequenceTable& sequences,
                          void* sample_workspace,
                          Stream& stream) {
  Side& side = sides_[static_cast<size_t>(ticket)];
  fill(side, plan, sequences);
  if (side.num_rows == 0) return 0;
  const size_t tokens_at = input_rows_bytes(limits_);
  const auto count = static_cast<size_t>(side.num_rows);
  backend_.copy(device_inputs_.data(), side.inputs.data(), count * sizeof(SampleRow), stream);
  backend_.copy(device_inputs_.data() + tokens_at, side.inputs.data() + tokens_at,
                count * sizeof(int32_t), stream);
  const SampleLayout layout(side.num_rows, side.max_logprobs);
  auto* words = device_outputs_.as<int32_t>();
  auto* floats = device_outputs_.as<float>();
  const bool listed = side.max_logprobs > 0;
  for (int32_t begin = 0; begin < side.num_rows; begin += limits_.max_logits) {
    const int32_t num_rows = std::min(limits_.max_logits, side.num_rows - begin);
    const auto* tokens = reinterpret_cast<const int32_t*>(device_inputs_.data() + tokens_at);
    decoder_.compute_logits(tokens + begin, num_rows, stream);
    const auto start = std::chrono::steady_clock::now();
    const int64_t list = int64_t{begin} * side.max_logprobs;
    backend_.sample({.logits = decoder_.logits(),
                     .num_rows = num_rows,
                     .vocab = limits_.vocab,
                     .rows = device_inputs_.as<SampleRow>() + begin,
                     .bias_ids = nullptr,
                     .bias_values = nullptr,
                     .token_counts = nullptr,
                     .allowed_masks = nullptr,
                     .max_logprobs = side.max_logprobs,
                     .tokens = words + layout.tokens + begin,
                     .token_logprobs = floats + layout.logprobs + begin,
                     .token_ranks = words + layout.ranks + begin,
                     .top_ids = listed ? words + layout.top_ids + list : nullptr,
                     .top_logprobs = listed ? floats + layout.top_logprobs + list : nullptr,
                     .workspace = sample_workspace},
                    stream);
    sample_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  backend_.copy(side.outputs.data(), device_outputs_.data(),
                static_cast<size_t>(layout.total_bytes), stream);
  return side.num_rows;
}

StepSamples PromptScorer::scores(int ticket) const {
  const Side& side = sides_[static_cast<size_t>(ticket)];
  const SampleLayout layout(side.num_rows, side.max_logprobs);
  return layout.view(side.outputs, static_cast<size_t>(side.num_rows), side.max_logprobs);
}

}  // namespace zipage
