#include "schedule/sequence.h"

#include <algorithm>
#include <limits>

#include "base/integer.h"

namespace zipage {

SequenceRules::SequenceRules(const SchedulerOptions& options, const SequenceSpec& spec) {
  const CompressionOptions& compression = options.compression;
  block_size = options.block_size;
  window = compression.window_size;
  prompt_length = static_cast<int32_t>(spec.prompt_tokens().size());
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max() / 2;
  int64_t limit = options.max_model_len > 0 ? std::min(options.max_model_len, kLargest) : kLargest;
  if (spec.max_new_tokens > 0)
    limit = std::min(limit, prompt_length + std::min(spec.max_new_tokens, kLargest));
  max_tokens = static_cast<int32_t>(std::max<int64_t>(limit, prompt_length + 1));
  slotless_limit = std::numeric_limits<int32_t>::max();
  first_trigger = std::numeric_limits<int32_t>::max();
  if (spec.kv_budget == kFullKv) return;

  max_blocks = static_cast<int32_t>(spec.kv_budget / block_size) + 1;
  const int32_t capacity = max_blocks * block_size;
  first_trigger = std::max<int32_t>(
      capacity, static_cast<int32_t>(ceil_div(int64_t{prompt_length}, block_size)) * block_size);
  const bool can_be_compressed = max_tokens - 1 >= first_trigger;
  needs_slot = can_be_compressed || options.scheduling == Scheduling::kConstrained;
  if (!can_be_compressed) return;

  // L0 = max(0, N_max*b - 4H), rounded up to a multiple of w (3.2), but a window before the first
  // compression at the latest: that one reads F, also when H is below w/4.
  const int64_t tracked =
      std::max<int64_t>(window, 4 * static_cast<int64_t>(compression.attention_half_life));
  const int64_t start = std::max<int64_t>(0, capacity - tracked);
  peak_start = static_cast<int32_t>(ceil_div(start, window)) * window;
  const KvPolicyTraits& policy = traits_of(spec.kv_policy);
  updates_peak = policy.updates_f;
  // Every query of the window before the first update or compression must reach the slot.
  slotless_limit = updates_peak ? peak_start : capacity - window;
  const bool window_reaches_prompt =
      updates_peak ? prompt_length > peak_start : first_trigger - prompt_length < window;
  if (policy.needs_queries && window_reaches_prompt)
    uncached_prompt = std::min(window, prompt_length);
}

int32_t SequenceRules::final_blocks() const {
  const int32_t all = static_cast<int32_t>(ceil_div(int64_t{max_tokens} - 1, block_size));
  return capped() ? std::min(max_blocks, all) : all;
}

bool Sequence::at_trigger() const {
  return rules.capped() && computed >= rules.prompt_length && kv_length % rules.block_size == 0 &&
         kv_length >= rules.max_blocks * rules.block_size;
}

int32_t Sequence::next_trigger() const {
  if (!rules.capped()) return std::numeric_limits<int32_t>::max();
  if (history == 0) return rules.first_trigger;
  return rules.max_blocks * rules.block_size + evicted();
}

int32_t Sequence::step_end() const {
  int32_t end = std::min(num_tokens, next_trigger());
  if (lacks_slot()) end = std::min(end, rules.slotless_limit);
  if (!rules.capped()) return end;
  if (computed < rules.prompt_length) return std::min(end, rules.prompt_length);
  // A replay sees its updates one at a time, each with the window it had.
  if (tracks_peak()) {
    const int32_t from = std::max(computed, rules.peak_start);
    end = std::min(end, (from / rules.window + 1) * rules.window);
  }
  return end;
}

int32_t Sequence::kv_target() const { return std::min(num_tokens, next_trigger()) - evicted(); }

bool Sequence::updates_peak_at(int32_t end) const {
  if (!tracks_peak() || end <= rules.peak_start || end < rules.prompt_length) return false;
  return end == rules.prompt_length || end % rules.window == 0;
}

}  // namespace zipage
