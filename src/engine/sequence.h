// One sequence of a request: its tokens, and what turns sampled tokens into output.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zipage/engine.h"
#include "zipage/tokenizer.h"

#include "blocks/ids.h"
#include "sampling/request_sampler.h"
#include "sampling/stop_matcher.h"

namespace zipage {

// A request as the engine keeps it until its last sequence ends: made on the thread that submits
// it, shared by its sequences.
struct RequestState {
  RequestId id = 0;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  int32_t priority = 0;
  std::string cache_salt, external_id;
  std::unique_ptr<const RequestSampler> sampler;
  // Null: no stop strings.
  std::unique_ptr<const StopStrings> stops;
  // Tokens that each sequence samples at most.
  int32_t max_new_tokens = 0;
  OutputCallback callback;
  std::chrono::steady_clock::time_point submitted;
  int32_t live_sequences = 0;

  const SamplingParams& sampling() const { return sampler->params(); }
  int32_t num_prompt_tokens() const { return static_cast<int32_t>(prompt->size()); }
  // Nothing is to be generated (max_tokens 0): one token is sampled, since that is how a step ends
  // a prompt, and thrown away.
  bool prompt_only() const { return sampling().max_tokens == 0; }
};

// Log-probabilities of a prompt's tokens, as far as they are known.
struct PromptScores {
  int32_t num_alternatives = 0;
  int32_t num_launched = 0;  // leading prompt tokens whose logits were computed, or are under way
  // For each token from the second one on: itself, then the best; reserved to its largest size.
  std::vector<TokenLogprob> values;
};

// One of the n sequences of a request. Members that take memory are empty until the first step
// that has a row of it: a queue may be long. Thread: the engine's.
struct EngineSequence {
  SequenceId id = 0;
  RequestState* request = nullptr;
  // < sampling.n
  int32_t index = 0;
  // Of the draws.
  uint64_t seed = 0;
  // Prompt, then output; reserved to its largest size. A token that is sampled but not yet read
  // from the device stands as -1 - (its row in that step's samples): what EmbedArgs takes in the
  // step after.
  std::vector<int32_t> tokens;
  int32_t num_prompt_tokens = 0;
  int32_t seat = -1;                      // < max_num_seqs: its row of the sampler's tables
  int64_t num_cached_tokens = 0;          // of the prompt, from the prefix cache
  int32_t num_delivered = 0;              // output tokens that the caller has seen
  int32_t num_counted_prompt_tokens = 0;  // of EngineStats::prompt_tokens
  // Start of the first step with a row of it, and arrival of its first output token.
  std::optional<std::chrono::steady_clock::time_point> first_scheduled, first_token;
  std::unique_ptr<IncrementalDecoder> decoder;  // null: no detokenisation
  std::unique_ptr<StopMatcher> stops;           // null: no stop strings
  std::unique_ptr<PromptScores> scores;         // null: not wanted, or delivered

  bool started() const { return first_scheduled.has_value(); }
  const RequestSampler& sampler() const { return *request->sampler; }
  // Output tokens sampled so far, delivered or not; of a sequence that has started.
  int32_t num_sampled() const { return static_cast<int32_t>(tokens.size()) - num_prompt_tokens; }
};

}  // namespace zipage
