#include "sampling/sampler_state.h"

#include <algorithm>
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
  bias.ids[bias.count] = id;
  bias.values[bias.count] = value;
  ++bias.count;
}

}  // namespace

SamplerState::SamplerState(const SamplingParams& params, SamplerContext context)
    : params_(params), context_(std::move(context)), stop_ids_(params.stop_token_ids) {
  if (!params_.ignore_eos)
    stop_ids_.insert(stop_ids_.end(), context_.eos_ids.begin(), context_.eos_ids.end());
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

bool SamplerState::needs_counts() const {
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
         params_.frequency_penalty != 0;
}

bool SamplerState::needs_mask() const { return !params_.allowed_token_ids.empty(); }

void SamplerState::fill_counts(std::span<const int32_t> tokens,
                               int32_t num_prompt_tokens,
                               std::span<uint32_t> counts) const {
  ZIPAGE_CHECK(std::ssize(counts) == context_.vocab_size);
  ZIPAGE_CHECK(num_prompt_tokens <= std::ssize(tokens));
  std::fill(counts.begin(), counts.end(), 0u);
  for (const int32_t id : tokens.first(num_prompt_tokens)) counts[id] |= kInPrompt;
  for (const int32_t id : tokens.subspan(num_prompt_tokens)) ++counts[id];
}

void SamplerState::fill_mask(std::span<uint32_t> mask) const {
  ZIPAGE_CHECK(std::ssize(mask) == (context_.vocab_size + 31) / 32);
  std::fill(mask.begin(), mask.end(), 0u);
  for (const int32_t id : params_.allowed_token_ids) mask[id / 32] |= 1u << (id % 32);
}

int32_t SamplerState::max_bias_entries() const {
  const size_t stops = params_.min_tokens > 0 ? stop_ids_.size() : 0;
  return static_cast<int32_t>(params_.logit_bias.size() + stops + context_.bad_words.size());
}

SampleRow SamplerState::row(std::span<const int32_t> tokens,
                            int32_t num_prompt_tokens,
                            int32_t seat,
                            BiasList& bias) const {
  const std::span<const int32_t> output = tokens.subspan(num_prompt_tokens);
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
  row.seed = context_.seed;
  row.step = output.size();
  if (params_.logprobs)
    row.num_logprobs = *params_.logprobs < 0 ? context_.vocab_size : *params_.logprobs;
  row.count_slot = needs_counts() ? seat : -1;
  row.mask_slot = needs_mask() ? seat : -1;

  row.bias_begin = bias.count;
  for (const auto& [id, value] : params_.logit_bias) append(bias, id, value);
  if (static_cast<int64_t>(output.size()) < params_.min_tokens) {
    for (const int32_t id : stop_ids_) append(bias, id, kForbidden);
  }
  // A bad word is forbidden by its last token, once the ones before it have been generated.
  for (const std::vector<int32_t>& word : context_.bad_words) {
    if (word.empty() || word.size() - 1 > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - (word.size() - 1))) {
      append(bias, word.back(), kForbidden);
    }
  }
  row.bias_count = bias.count - row.bias_begin;
  return row;
}

bool SamplerState::is_stop(int32_t token, int32_t num_output_tokens) const {
  return num_output_tokens >= params_.min_tokens &&
         std::binary_search(stop_ids_.begin(), stop_ids_.end(), token);
}

bool SamplerState::is_eos(int32_t token) const {
  return std::find(context_.eos_ids.begin(), context_.eos_ids.end(), token) !=
         context_.eos_ids.end();
}

}  // namespace zipage
