// What the sampler has to know of one sequence between steps: host bookkeeping, no device. Thread:
// the engine's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zipage/sampling_params.h"

#include "backend/ops/sampling.h"

namespace zipage {

struct SamplerContext {
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_ids;  // the model's
  uint64_t seed = 0;  // of this sequence: the request's (plus its index), or the engine's choice
  std::vector<std::vector<int32_t>> bad_words;  // params.bad_words, tokenised
};

// Where the biases of a step's rows are collected. Fixed capacity: the engine's upload buffer.
struct BiasList {
  std::span<int32_t> ids;
  std::span<float> values;
  int32_t count = 0;
};

class SamplerState {
 public:
  SamplerState(const SamplingParams& params, SamplerContext context);

  // Rows of the device's count and mask tables are given by the engine: both are the sequence's
  // seat.
  bool needs_counts() const;  // any penalty
  bool needs_mask() const;    // allowed_token_ids
  // Initial contents of those rows: counts [vocab] with the prompt's bit set, mask [ceil(vocab /
  // 32)].
  void fill_counts(std::span<const int32_t> tokens,
                   int32_t num_prompt_tokens,
                   std::span<uint32_t> counts) const;
  void fill_mask(std::span<uint32_t> mask) const;

  // Most entries that row() may append to the bias list at any step; the engine rejects a request
  // above its capacity.
  int32_t max_bias_entries() const;

  // The row that samples the token after `tokens` (prompt and output). Appends logit_bias, the stop
  // ids that min_tokens forbids and the bad words about to be completed.
  SampleRow row(std::span<const int32_t> tokens,
                int32_t num_prompt_tokens,
                int32_t seat,
                BiasList& bias) const;

  // Whether `token`, the num_output_tokens-th output token (counted with it), ends the sequence:
  // EOS (unless ignored) or a stop id, from min_tokens on. stop_token_id() says which it was: -1
  // for EOS.
  bool is_stop(int32_t token, int32_t num_output_tokens) const;
  bool is_eos(int32_t token) const;

 private:
  SamplingParams params_;
  SamplerContext context_;
  std::vector<int32_t> stop_ids_;  // EOS and stop_token_ids, sorted
};

// Finds stop strings in text that comes in pieces; holds back what may be the beginning of one.
class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include_in_output);
  // Appends a piece. Text that can no longer be part of a stop string is added to `out`. True when
  // a stop string was found: `out` ends before it (or after it, with include_in_output), and
  // matched() says which.
  bool push(std::string_view piece, std::string* out);
  // The end of the sequence: what was held back goes to `out`.
  void finish(std::string* out);
  const std::string& matched() const { return matched_; }
  bool active() const { return !stops_.empty(); }

 private:
  std::vector<std::string> stops_;
  bool include_in_output_;
  std::string held_;
  std::string matched_;
};

}  // namespace zipage
