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

// Adds the token's text; true when a stop string was met. Text of the first min_tokens tokens takes
// no part in the search: nothing of it is cut or held back.
bool add_text(EngineSequence& sequence, int32_t token, bool stops_allowed, RequestOutput& output) {
  if (!sequence.decoder) return false;
  const std::string text = sequence.decoder->push(token);
  if (sequence.stops && stops_allowed) return sequence.stops->push(text, &output.new_text);
  output.new_text += text;
  return false;
}

// What was held back, as the beginning of a stop string or of a character, now that nothing follows.
void end_text(EngineSequence& sequence, RequestOutput& output) {
  if (!sequence.decoder) return;
  if (sequence.stops) sequence.stops->finish(&output.new_text);
  output.new_text += sequence.decoder->finish();
}

// The end of a sequence that a stop token ended, which may be shown.
void end_at_stop_token(EngineSequence& sequence, int32_t token, RequestOutput& output) {
  output.finish_reason = FinishReason::kStop;
  const bool eos = sequence.sampler().is_eos(token);
  if (!eos) output.stop_reason = std::to_string(token);
  if (sequence.decoder && sequence.stops) sequence.stops->finish(&output.new_text);
  if (!eos && sequence.request->sampling().include_stop_str_in_output)
    add_text(sequence, token, /*stops_allowed=*/false, output);
  end_text(sequence, output);
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
  const RequestState& request = *sequence.request;
  const SamplingParams& params = request.sampling();
  const int32_t token = samples.tokens[index];
  if (token < 0) {
    output.finish_reason = FinishReason::kError;
    output.error = sequence.sampler().nothing_to_sample(sequence.num_delivered + 1);
    end_text(sequence, output);
    return;
  }
  if (sequence.scores) move_scores(sequence, output);
  if (request.prompt_only()) {
    output.finish_reason = FinishReason::kLength;
    return;
  }
  sequence.tokens[static_cast<size_t>(sequence.num_prompt_tokens + sequence.num_delivered)] = token;
  const int32_t count = ++sequence.num_delivered;
  output.new_token_ids.push_back(token);
  if (params.logprobs)
    append_logprobs(samples, index, *params.logprobs, output.new_logprobs.emplace_back());

  if (sequence.sampler().is_stop(token, count)) {
    end_at_stop_token(sequence, token, output);
  } else if (add_text(sequence, token, count > params.min_tokens, output)) {
    output.finish_reason = FinishReason::kStop;
    output.stop_reason = sequence.stops->matched();
  } else if (count >= request.max_new_tokens) {
    output.finish_reason = FinishReason::kLength;
    end_text(sequence, output);
  }
}

}  // namespace zipage
