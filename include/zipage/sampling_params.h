// What a request asks of the sampler. Names and meanings as in vLLM's SamplingParams.
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
  int32_t n = 1;
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int32_t top_k = 0;  // 0 or -1: all
  double min_p = 0.0;
  double typical_p = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens = 16;  // none: up to the model's length
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;  // only true
  bool detokenize = true;
  std::optional<int32_t> logprobs;         // alternatives a token, at most 20
  std::optional<int32_t> prompt_logprobs;  // the same of each prompt token but the first
  bool skip_reading_prefix_cache = false;  // on where prompt_logprobs are wanted
  std::map<int32_t, float> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // empty: all
  std::vector<std::string> bad_words;
  // Ours: the cap of this request. None: the engine's.
  std::optional<int64_t> kv_budget;
  std::optional<KvPolicy> kv_policy;

  // The first value out of range, by name.
  Status validate(int64_t vocab_size) const;
};

}  // namespace zipage
