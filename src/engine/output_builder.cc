#include "engine/output_builder.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/check.h"

namespace zipage {
namespace {

// The token itself, then the best of its place.
void append_logprobs(const StepSamples& samples,
                     size_t index,
                     int32_t wanted,
                     std::vector<TokenLogprob>& list) {
  list.push_back({samples.tokens[index], samples.logprobs[index], samples.ranks[index]});
  const auto stride = static_cast<size_t>(samples.max_logprobs);
  for (int32_t i = 0; i < std::min(wanted, samples.max_logprobs); ++i) {
    const size_t at = index * stride + static_cast<size_t>(i);
    list.push_back({samples.top_ids[at], samples.top_logprobs[at], i + 1});
  }
}

// With the first output token: all that was kept of the prompt. The first token has nothing before
// it.
void move_scores(EngineSequence& sequence, RequestOutput& output) {
  const std::unique_ptr<PromptScores> scores = std::move(sequence.scores);
  const auto width = static_cast<size_t>(scores->num_alternatives) + 1;
  ZIPAGE_CHECK_EQ(scores->values.size(),
                  width * (static_cast<size_t>(sequence.num_prompt_tokens) - 1));
  output.prompt_logprobs.emplace_back();
  for (auto at = scores->values.begin(); at != scores->values.end();) {
    const auto end = at + static_cast<std::ptrdiff_t>(width);
    output.prompt_logprobs.emplace_back(at, end);
    at = end;
  }
}

// Adds the token's text; true when a stop string was met.
bool add_text(EngineSequence& sequence, int32_t token, bool stops_allowed, RequestOutput& output) {
  if (!sequence.decoder) return false;
  if (!sequence.stops) {
    output.new_text += sequence.decoder->push(token);
    return false;
  }
  const bool met = sequence.stops->push(sequence.decoder->push(token), &output.new_text);
  return met && stops_allowed;
}

void end_text(EngineSequence& sequence, RequestOutput& output) {
  if (!sequence.decoder) return;
  const std::string rest = sequence.decoder->finish();
  if (!sequence.stops) {
    output.new_text += rest;
    return;
  }
  sequence.stops->push(rest, &output.new_text);
  sequence.stops->finish(&output.new_text);
}

// The phases of the sequence up to now.
void set_times(const EngineSequence& sequence, RequestOutput& output) {
  const auto now = std::chrono::steady_clock::now();
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const auto scheduled = sequence.first_scheduled.value_or(now);
  const auto first_token = sequence.first_token.value_or(now);
  output.queue_seconds = seconds(sequence.request->submitted, scheduled);
  output.prefill_seconds = seconds(scheduled, first_token);
  output.decode_seconds = seconds(first_token, now);
}

}  // namespace

void keep_scores(EngineSequence& sequence, const StepSamples& scores, size_t index, int32_t count) {
  PromptScores& kept = *sequence.scores;
  for (size_t i = index; i < index + static_cast<size_t>(count); ++i)
    append_logprobs(scores, i, kept.num_alternatives, kept.values);
}

void begin_output(const EngineSequence& sequence, RequestOutput& output) {
  output.request_id = sequence.request->id;
  output.index = sequence.index;
  output.new_token_ids.clear();
  output.new_text.clear();
  output.new_logprobs.clear();
  output.prompt_logprobs.clear();
  output.finish_reason = FinishReason::kNone;
  output.stop_reason.clear();
  output.error = Status();
  output.num_prompt_tokens = sequence.num_prompt_tokens;
  output.num_cached_tokens = sequence.num_cached_tokens;
  set_times(sequence, output);
}

void deliver_sample(EngineSequence& sequence,
                    const StepSamples& samples,
                    size_t index,
                    RequestOutput& output) {
  if (!sequence.first_token) sequence.first_token = std::chrono::steady_clock::now();
  begin_output(sequence, output);
  const SamplingParams& params = sequence.request->request.sampling;
  const int32_t token = samples.tokens[index];
  sequence.tokens[static_cast<size_t>(sequence.num_prompt_tokens + sequence.num_delivered)] = token;
  const int32_t count = ++sequence.num_delivered;
  output.new_token_ids.push_back(token);
  if (params.logprobs)
    append_logprobs(samples, index, *params.logprobs, output.new_logprobs.emplace_back());
  if (sequence.scores) move_scores(sequence, output);

  if (sequence.sampler->is_stop(token, count)) {
    output.finish_reason = FinishReason::kStop;
    const bool eos = sequence.sampler->is_eos(token);
    if (!eos) output.stop_reason = std::to_string(token);
    if (!eos && params.include_stop_str_in_output) add_text(sequence, token, false, output);
    end_text(sequence, output);
    return;
  }
  if (add_text(sequence, token, count >= params.min_tokens, output)) {
    output.finish_reason = FinishReason::kStop;
    output.stop_reason = sequence.stops->matched();
    return;
  }
  if (count >= sequence.max_new_tokens) {
    output.finish_reason = FinishReason::kLength;
    end_text(sequence, output);
  }
}

}  // namespace zipage
