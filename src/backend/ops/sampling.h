// Contract of the sampler. Order of operations as in vLLM: allowed tokens and bias, bad words,
// penalties, then greedy, or temperature, min-p, top-k, top-p, typical-p and one draw.
// log-probabilities are of the raw logits. A row whose token is given draws nothing.
//
// NaN logits count as -inf, +inf as the largest finite number. When every token is forbidden (its
// logit is -inf, or the mask and the biases leave none) the row's token is -1, with log-probability
// -inf and rank 0, and nothing is counted. Tokens are ordered by logit, falling, equals by rising id. min-p drops p <
// min_p * max(p); top-k keeps the equals of the k-th; top-p keeps the shortest prefix of the order
// whose probability, after the filters before it, is at least top_p; typical-p the same in the
// order of |-log p - entropy|, equals of the last included. The draw is the lowest id at which the
// sum of the kept probabilities, in the order of ids, passes philox_uniform(seed, step).
#pragma once

#include <cstdint>

namespace zipage {

// One row's choices. Plain data, device memory on a GPU.
struct SampleRow {
  // 0: greedy, ties to the lowest id.
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  // 0: all.
  int32_t top_k = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // draw = Philox4x32-10(key = seed, counter = step): see sampling/philox.h.
  uint64_t seed = 0;
  // Index of the output token.
  uint64_t step = 0;
  // -1: none; 0: of the sampled token; n: and the n best.
  int32_t num_logprobs = -1;
  // Into bias_ids / bias_values.
  int32_t bias_begin = 0;
  int32_t bias_count = 0;
  // Row of token_counts; -1: no penalties.
  int32_t count_slot = -1;
  // Row of allowed_masks; -1: every token.
  int32_t mask_slot = -1;
  // Not -1: nothing is sampled and nothing counted; this is the row's token (of a prompt, whose
  // log-probability is wanted).
  int32_t given_token = -1;
};

struct SampleArgs {
  // [num_rows, vocab]; may be overwritten.
  const float* logits;
  int32_t num_rows;
  int32_t vocab;
  // [num_rows]
  const SampleRow* rows;
  // Ids whose logits get a bias; -inf forbids the token.
  const int32_t* bias_ids;
  const float* bias_values;
  // [slots, vocab] in/out: low 31 bits: times in the output; top bit: in the prompt. The sampled
  // token of a row with a count slot is counted.
  uint32_t* token_counts;
  // [slots, ceil(vocab / 32)] bits.
  const uint32_t* allowed_masks;
  // Row length of the top arrays; 0: none.
  int32_t max_logprobs;
  // Output: [num_rows]
  int32_t* tokens;
  // Output: [num_rows] or null.
  float* token_logprobs;
  // Output: [num_rows] or null: how many tokens have a logit of at least the token's, as in vLLM. 1
  // is the most likely; equals share the rank of the last of them.
  int32_t* token_ranks;
  // Rows without logprobs leave their places in these alone; places behind a row's n hold id -1 and
  // -inf.
  // Output: [num_rows, max_logprobs] or null, best first.
  int32_t* top_ids;
  // Output, same shape.
  float* top_logprobs;
  // Backend::sample_workspace_bytes()
  void* workspace;
};

// The ops of this page, one line each: see ops/op_list.h.
#define ZIPAGE_SAMPLING_OPS(op) op(sample, SampleArgs)

}  // namespace zipage
