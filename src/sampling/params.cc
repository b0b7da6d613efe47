// Ranges of SamplingParams, as in vLLM.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "zipage/sampling_params.h"

namespace zipage {
namespace {

template <typename Value>
std::optional<Status> wrong(const char* field, const Value& value, const std::string& expected) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} {}: expected {}", field, value, expected));
}

// NaN fails every comparison, so each test asks for what is right.
std::optional<Status> wrong_number(const SamplingParams& p) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (!(p.n >= 1 && p.n <= kMaxSequencesPerRequest))
    return wrong("n", p.n, fmt::format("1 to {}", kMaxSequencesPerRequest));
  if (!(p.temperature >= 0 && p.temperature <= kMax)) {
    return wrong("temperature", p.temperature, "a number of at least 0 (0: greedy)");
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return wrong("top_p", p.top_p, "a number in (0, 1]");
  if (!(p.top_k >= -1)) return wrong("top_k", p.top_k, "at least 1, or 0 or -1 for all tokens");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return wrong("min_p", p.min_p, "a number in [0, 1]");
  if (!(p.typical_p > 0 && p.typical_p <= 1))
    return wrong("typical_p", p.typical_p, "a number in (0, 1]");
  if (!(p.presence_penalty >= -2 && p.presence_penalty <= 2)) {
    return wrong("presence_penalty", p.presence_penalty, "a number in [-2, 2]");
  }
  if (!(p.frequency_penalty >= -2 && p.frequency_penalty <= 2)) {
    return wrong("frequency_penalty", p.frequency_penalty, "a number in [-2, 2]");
  }
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= kMax)) {
    return wrong("repetition_penalty", p.repetition_penalty, "a number above 0 (1: none)");
  }
  return std::nullopt;
}

std::optional<Status> wrong_length(const SamplingParams& p, int64_t vocab_size) {
  if (p.max_tokens && *p.max_tokens < 0) {
    return wrong("max_tokens", *p.max_tokens, "at least 1, or 0 to compute the prompt alone");
  }
  const int64_t longest = p.max_tokens.value_or(std::numeric_limits<int64_t>::max());
  if (p.min_tokens < 0) return wrong("min_tokens", p.min_tokens, "at least 0");
  if (p.min_tokens > longest) {
    return wrong("min_tokens", p.min_tokens, fmt::format("at most max_tokens ({})", longest));
  }
  const std::string alternatives =
      fmt::format("0 to {} (the vocabulary), or -1 for all", vocab_size);
  if (p.logprobs && (*p.logprobs < -1 || *p.logprobs > vocab_size))
    return wrong("logprobs", *p.logprobs, alternatives);
  if (p.prompt_logprobs && (*p.prompt_logprobs < -1 || *p.prompt_logprobs > vocab_size)) {
    return wrong("prompt_logprobs", *p.prompt_logprobs, alternatives);
  }
  if (p.kv_budget && *p.kv_budget < 0)
    return wrong("kv_budget", *p.kv_budget, "a number of tokens, or 0 for full");
  return std::nullopt;
}

std::optional<Status> wrong_token(const SamplingParams& p, int64_t vocab_size) {
  const std::string range = fmt::format("a token id in [0, {}]", vocab_size - 1);
  const auto outside = [&](int32_t id) { return id < 0 || id >= vocab_size; };
  const auto wrong_list = [&](const char* field,
                              const std::vector<int32_t>& ids) -> std::optional<Status> {
    if (static_cast<int64_t>(ids.size()) > vocab_size) {
      return wrong(field, fmt::format("{} ids", ids.size()),
                   fmt::format("at most {} (the vocabulary)", vocab_size));
    }
    const auto found = std::find_if(ids.begin(), ids.end(), outside);
    if (found != ids.end()) return wrong(field, *found, range);
    return std::nullopt;
  };
  if (auto status = wrong_list("stop_token_ids", p.stop_token_ids)) return status;
  if (p.allowed_token_ids) {
    if (p.allowed_token_ids->empty())
      return wrong("allowed_token_ids", "[]", "at least one token id, or no list for all tokens");
    if (auto status = wrong_list("allowed_token_ids", *p.allowed_token_ids)) return status;
  }
  for (const auto& [id, bias] : p.logit_bias) {
    if (outside(id)) return wrong("logit_bias", id, range);
    // -inf forbids a token.
    if (!(bias <= std::numeric_limits<float>::max())) {
      return wrong("logit_bias", fmt::format("{} of token {}", bias, id),
                   "a finite number, or -inf to forbid");
    }
  }
  return std::nullopt;
}

// Of a list of strings.
std::optional<Status> wrong_size(const char* field,
                                 const std::vector<std::string>& texts,
                                 size_t most_strings,
                                 size_t most_bytes) {
  if (texts.size() > most_strings)
    return wrong(field, fmt::format("{} strings", texts.size()),
                 fmt::format("at most {}", most_strings));
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) return wrong(field, "''", "strings that are not empty");
    bytes += text.size();
  }
  if (bytes > most_bytes)
    return wrong(field, fmt::format("{} bytes", bytes),
                 fmt::format("at most {} in all", most_bytes));
  return std::nullopt;
}

std::optional<Status> wrong_text(const SamplingParams& p) {
  if (auto status = wrong_size("stop", p.stop, kMaxStopStrings, kMaxStopBytes)) return status;
  if (!p.stop.empty() && !p.detokenize)
    return wrong("stop", fmt::format("'{}'", p.stop[0]), "detokenize on with stop strings");
  if (!p.spaces_between_special_tokens)
    return wrong("spaces_between_special_tokens", "false", "true");
  return wrong_size("bad_words", p.bad_words, kMaxBadWords, kMaxBadWordBytes);
}

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
  if (auto status = wrong_number(*this)) return *status;
  if (auto status = wrong_length(*this, vocab_size)) return *status;
  if (auto status = wrong_token(*this, vocab_size)) return *status;
  if (auto status = wrong_text(*this)) return *status;
  return Status();
}

}  // namespace zipage
