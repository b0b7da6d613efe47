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
  std::optional<uint64_t> seed;
  // Without a value: up to the model's length.
  std::optional<int64_t> max_tokens = 16;
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
  // Empty: all tokens.
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  // Not in vLLM: this request's own budget (kFullKv: no cap) and policy. Without a value: the
  // engine's.
  std::optional<int64_t> kv_budget;
  std::optional<KvPolicy> kv_policy;

  // Fails at the first value that is out of range, naming its field.
  Status validate(int64_t vocab_size) const;
};

}  // namespace zipage
