#include "sampling/request_sampler.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"

namespace zipage {
namespace {

// A temperature between 0 and this is raised to it, as in vLLM: below it the logits leave the range
// of f32.
constexpr double kLeastTemperature = 1e-2;
constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr uint32_t kInPrompt = 1u << 31;

void append(BiasList& bias, int32_t id, float value) {
  const size_t place = static_cast<size_t>(bias.count),
               capacity = std::min(bias.ids.size(), bias.values.size());
  ZIPAGE_CHECK_LT(place, capacity);
  bias.ids[place] = id;
  bias.values[place] = value;
  ++bias.count;
}

void sort_and_unite(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

RequestSampler::RequestSampler(SamplingParams params, SamplerContext context)
    : params_(std::move(params)),
      vocab_size_(context.vocab_size),
      eos_ids_(std::move(context.eos_ids)),
      bad_words_(std::move(context.bad_words)),
      stop_ids_(params_.stop_token_ids) {
  // What the model has no logit for can neither be sampled nor biased.
  const auto outside = [&](int32_t id) { return id < 0 || id >= vocab_size_; };
  std::erase_if(eos_ids_, outside);
  std::erase_if(bad_words_, [&](const std::vector<int32_t>& word) {
    return word.empty() || std::any_of(word.begin(), word.end(), outside);
  });
  std::sort(bad_words_.begin(), bad_words_.end());
  bad_words_.erase(std::unique(bad_words_.begin(), bad_words_.end()), bad_words_.end());
  if (!params_.ignore_eos) stop_ids_.insert(stop_ids_.end(), eos_ids_.begin(), eos_ids_.end());
  sort_and_unite(stop_ids_);
  if (params_.allowed_token_ids) sort_and_unite(*params_.allowed_token_ids);
}

std::string RequestSampler::restricting_fields() const {
  std::string fields;
  const auto add = [&](bool restricts, const char* field) {
    if (!restricts) return;
    if (!fields.empty()) fields += ", ";
    fields += field;
  };
  add(params_.allowed_token_ids.has_value(), "allowed_token_ids");
  add(std::any_of(params_.logit_bias.begin(), params_.logit_bias.end(),
                  [](const auto& entry) { return entry.second == kForbidden; }),
      "logit_bias");
  add(!bad_words_.empty(), "bad_words");
  add(params_.min_tokens > 0 && !stop_ids_.empty(), "min_tokens");
  return fields;
}

std::vector<int32_t> RequestSampler::forbidden_at_first() const {
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : params_.logit_bias) {
    if (bias == kForbidden) ids.push_back(id);
  }
  for (const std::vector<int32_t>& word : bad_words_) {
    if (word.size() == 1) ids.push_back(word.front());
  }
  if (params_.min_tokens > 0) ids.insert(ids.end(), stop_ids_.begin(), stop_ids_.end());
  sort_and_unite(ids);
  return ids;
}

Status RequestSampler::check(int32_t max_bias) const {
  if (const int64_t entries = max_bias_entries(); entries > max_bias) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("logit_bias: {} entries; at most {}, with bad_words (each in up to two forms) "
                    "and the stop_token_ids that min_tokens holds back",
                    entries, max_bias));
  }
  const std::vector<int32_t> forbidden = forbidden_at_first();
  const auto is_forbidden = [&](int32_t id) {
    return std::binary_search(forbidden.begin(), forbidden.end(), id);
  };
  const bool nothing_left = params_.allowed_token_ids
                                ? std::all_of(params_.allowed_token_ids->begin(),
                                              params_.allowed_token_ids->end(), is_forbidden)
                                : std::ssize(forbidden) == vocab_size_;
  if (!nothing_left) return Status();
  const std::string fields = restricting_fields();
  const size_t first = std::min(fields.find(','), fields.size());
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: no token is left to sample from: {} together forbid all of them",
                            fields.substr(0, first), fields));
}

Status RequestSampler::nothing_to_sample(int32_t num_output_tokens) const {
  const std::string fields = restricting_fields();
  if (fields.empty()) {
    return Status(
        StatusCode::kInternal,
        fmt::format("output token {}: the model's logits are all NaN or -inf", num_output_tokens));
  }
  const size_t first = std::min(fields.find(','), fields.size());
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: no token is left to sample output token {} from: every one is "
                            "forbidden ({}) or has a logit of NaN or -inf",
                            fields.substr(0, first), num_output_tokens, fields));
}

bool RequestSampler::needs_counts() const {
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
         params_.frequency_penalty != 0;
}

void RequestSampler::fill_counts(std::span<const int32_t> tokens,
                                 int32_t num_prompt_tokens,
                                 std::span<uint32_t> counts) const {
  ZIPAGE_CHECK(std::ssize(counts) == vocab_size_);
  ZIPAGE_CHECK(num_prompt_tokens <= std::ssize(tokens));
  std::fill(counts.begin(), counts.end(), 0u);
  const auto prompt = static_cast<size_t>(num_prompt_tokens);
  for (const int32_t id : tokens.first(prompt)) counts[static_cast<size_t>(id)] |= kInPrompt;
  for (const int32_t id : tokens.subspan(prompt)) ++counts[static_cast<size_t>(id)];
}

void RequestSampler::fill_mask(std::span<uint32_t> mask) const {
  ZIPAGE_CHECK(std::ssize(mask) == (vocab_size_ + 31) / 32);
  std::fill(mask.begin(), mask.end(), 0u);
  for (const int32_t id : *params_.allowed_token_ids)
    mask[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
}

int64_t RequestSampler::max_bias_entries() const {
  const size_t stops = params_.min_tokens > 0 ? stop_ids_.size() : 0;
  return static_cast<int64_t>(params_.logit_bias.size() + stops + bad_words_.size());
}

SampleRow RequestSampler::row(std::span<const int32_t> tokens,
                              int32_t num_prompt_tokens,
                              uint64_t seed,
                              int32_t seat,
                              BiasList& bias) const {
  const std::span<const int32_t> output = tokens.subspan(static_cast<size_t>(num_prompt_tokens));
  SampleRow row;
  row.temperature = static_cast<float>(
      params_.temperature > 0 ? std::max(params_.temperature, kLeastTemperature) : 0.0);
  row.top_p = static_cast<float>(params_.top_p);
  row.min_p = static_cast<float>(params_.min_p);
  row.typical_p = static_cast<float>(params_.typical_p);
  row.top_k = std::max(params_.top_k, 0);
  row.repetition_penalty = static_cast<float>(params_.repetition_penalty);
  row.presence_penalty = static_cast<float>(params_.presence_penalty);
  row.frequency_penalty = static_cast<float>(params_.frequency_penalty);
  row.seed = seed;
  row.step = output.size();
  if (params_.logprobs) row.num_logprobs = *params_.logprobs < 0 ? vocab_size_ : *params_.logprobs;
  row.count_slot = needs_counts() ? seat : -1;
  row.mask_slot = needs_mask() ? seat : -1;

  row.bias_begin = bias.count;
  for (const auto& [id, value] : params_.logit_bias) append(bias, id, value);
  if (std::ssize(output) < params_.min_tokens) {
    for (const int32_t id : stop_ids_) append(bias, id, kForbidden);
  }
  // A bad word is forbidden by its last token, once the ones before it have been generated.
  for (const std::vector<int32_t>& word : bad_words_) {
    const size_t before = word.size() - 1;
    if (before > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1,
                   output.end() - static_cast<std::ptrdiff_t>(before)))
      append(bias, word.back(), kForbidden);
  }
  row.bias_count = bias.count - row.bias_begin;
  return row;
}

bool RequestSampler::is_stop(int32_t token, int32_t num_output_tokens) const {
  return num_output_tokens >= params_.min_tokens &&
         std::binary_search(stop_ids_.begin(), stop_ids_.end(), token);
}

bool RequestSampler::is_eos(int32_t token) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
}

}  // namespace zipage
