// How many entries each field of a body may have. They follow from the model where they can: a
// request that fills its context passes, and what could never be a prompt is refused early.
#pragma once

#include <cstdint>
#include <memory>

#include "server/json_scan.h"

namespace zipage::server {

struct CountLimitInputs {
  int64_t max_model_len = 0, vocab_size = 0, max_sequences_per_request = 0;
};

std::shared_ptr<const CountLimits> count_limits(const CountLimitInputs& inputs);

// The longest body: what the server was told, or (0) 16 MiB and at least 32 bytes a token of the
// model's context.
uint64_t most_body_bytes(uint64_t told_bytes, int64_t max_model_len);

}  // namespace zipage::server
