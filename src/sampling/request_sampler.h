// What the sampler has to know of a request: its parameters, worked out once on the thread that
// submits it and shared by all of its sequences.
//
//   RequestSampler sampler(std::move(params), {.vocab_size = 320, .eos_ids = {258}});
//   if (Status status = sampler.check(max_bias); !status.ok()) return status;
//   SampleRow row = sampler.row(tokens, num_prompt_tokens, seed, seat, bias);
//
// Host bookkeeping, no device. Threads: immutable after construction; any thread may read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zipage/sampling_params.h"

#include "backend/ops/sampling.h"

namespace zipage {

// What a model adds to the parameters of a request.
struct SamplerContext {
  int32_t vocab_size = 0;
  // The model's.
  std::vector<int32_t> eos_ids;
  // SamplingParams::bad_words, tokenised; each token sequence is forbidden.
  std::vector<std::vector<int32_t>> bad_words;
};

// Where the biases of a step's rows are collected. Fixed capacity: the engine's upload buffer.
struct BiasList {
  std::span<int32_t> ids;
  std::span<float> values;
  int32_t count = 0;
};

class RequestSampler {
 public:
  RequestSampler(SamplingParams params, SamplerContext context);

  const SamplingParams& params() const { return params_; }

  // Why the request can never be sampled: restrictions that leave no token for its first output
  // token, or more biases at a step than `max_bias`. Names the fields.
  Status check(int32_t max_bias) const;
  // Why a step found no token to sample for output token `num_output_tokens`, counted from 1.
  Status nothing_to_sample(int32_t num_output_tokens) const;

  // Whether sequences need rows of the device's count and mask tables. The engine gives both: they
  // are the sequence's seat.
  bool needs_counts() const;
  bool needs_mask() const { return params_.allowed_token_ids.has_value(); }
  // Whether a row depends on every token sampled so far, so that the host must read each of them
  // before the next is sampled.
  bool reads_output() const { return !bad_words_.empty(); }
  // Initial contents of those rows: counts [vocab] with the prompt's bit set, mask [ceil(vocab /
  // 32)].
  void fill_counts(std::span<const int32_t> tokens,
                   int32_t num_prompt_tokens,
                   std::span<uint32_t> counts) const;
  void fill_mask(std::span<uint32_t> mask) const;

  // Most entries that row() may append to the bias list at any step.
  int64_t max_bias_entries() const;

  // The row that samples the token after `tokens` (prompt and output). Appends logit_bias, the stop
  // ids that min_tokens forbids and the bad words about to be completed.
  SampleRow row(std::span<const int32_t> tokens,
                int32_t num_prompt_tokens,
                uint64_t seed,
                int32_t seat,
                BiasList& bias) const;

  // Whether `token`, the num_output_tokens-th output token (counted with it), ends the sequence:
  // EOS (unless ignored) or a stop id, from min_tokens on.
  bool is_stop(int32_t token, int32_t num_output_tokens) const;
  bool is_eos(int32_t token) const;

 private:
  // The fields of the request that forbid tokens, "allowed_token_ids, bad_words"; empty: none does.
  std::string restricting_fields() const;
  // Ids that no bias or mask leaves for the first output token.
  std::vector<int32_t> forbidden_at_first() const;

  SamplingParams params_;
  int32_t vocab_size_;
  std::vector<int32_t> eos_ids_;
  std::vector<std::vector<int32_t>> bad_words_;
  // EOS (unless ignored) and stop_token_ids, sorted.
  std::vector<int32_t> stop_ids_;
};

}  // namespace zipage
