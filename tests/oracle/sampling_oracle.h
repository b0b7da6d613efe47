// The sampler's definition (backend/ops/sampling.h) in double precision: every token's probability,
// by sorting.
#pragma once

#include <vector>

#include "backend/ops/sampling.h"

namespace zipage::oracle {

// Raw logits of a row; NaN counts as -inf, +inf as the largest f32.
std::vector<double> raw_logits(const SampleArgs& args, int row);

// Logits of a row after allowed tokens, bias and penalties.
std::vector<double> changed_logits(const SampleArgs& args, int row);

// Probability of each token of a row: one token has 1 when greedy.
std::vector<double> token_distribution(const SampleArgs& args, int row);

// log-softmax of a row's raw logits.
std::vector<double> raw_logprobs(const SampleArgs& args, int row);

// Ids by falling value, equals by rising id.
std::vector<int> order_of(const std::vector<double>& values);

}  // namespace zipage::oracle
