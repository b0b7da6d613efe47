// What a request asks of the sampler. Names and meanings are those of vLLM's SamplingParams.
//
//   SamplingParams params;
//   params.temperature = 0;
//   params.max_tokens = std::nullopt;
//
// Threads: plain values. Implemented in src/sampling/params.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zipage/options.h"
#include "zipage/status.h"

namespace zipage {

// What one request may ask for at most; validate() refuses more. Lists of token ids hold at most as
// many entries as the vocabulary has.
inline constexpr int32_t kMaxSequencesPerRequest = 16384;
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = size_t{64} << 10;
inline constexpr size_t kMaxBadWords = 1024;
inline constexpr size_t kMaxBadWordBytes = size_t{64} << 10;

struct SamplingParams {
  // Sequences to generate from one prompt.
  int32_t n = 1;
  // 0: greedy.
  double temperature = 1.0;
  double top_p = 1.0;
  // 0 or -1: all tokens.
  int32_t top_k = 0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  // Sequence i of n draws from seed + i. Without a value: from the engine's seed and the request's
  // number.
  std::optional<uint64_t> seed;
  // Without a value: up to the model's length. 0: the prompt is computed (and scored, with
  // prompt_logprobs) and nothing is generated; it may then fill the whole of max_model_len.
  std::optional<int64_t> max_tokens = 16;
  // Nothing ends a sequence before it has so many tokens: neither EOS nor stop_token_ids are
  // sampled, and the text of these tokens is no part of a match of `stop`.
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  // Only true is supported.
  bool spaces_between_special_tokens = true;
  bool detokenize = true;
  // How many alternatives to report per generated token, at most 20.
  std::optional<int32_t> logprobs;
  // The same for each prompt token but the first.
  std::optional<int32_t> prompt_logprobs;
  // Requests with prompt_logprobs never read the prefix cache.
  bool skip_reading_prefix_cache = false;
  std::map<int32_t, float> logit_bias;
  // Without a value: all tokens. An empty list is an error.
  std::optional<std::vector<int32_t>> allowed_token_ids;
  // Texts that are not generated: neither as they are written (without leading white space) nor, if
  // that makes as many tokens and another first one, with a space in front.
  std::vector<std::string> bad_words;
  // Not in vLLM: this request's own budget (kFullKv: no cap) and policy. Without a value: the
  // engine's.
  std::optional<int64_t> kv_budget;
  std::optional<KvPolicy> kv_policy;

  // Fails at the first value that is out of range, naming its field.
  Status validate(int64_t vocab_size) const;
};

}  // namespace zipage
