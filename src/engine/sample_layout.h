// What the sampler leaves of a step: arrays in one block of memory, on the device and on the host.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace zipage {

// What the sampler drew, or what it found of given tokens; one entry a row.
struct StepSamples {
  std::span<const int32_t> tokens;
  std::span<const float> logprobs;      // of the tokens
  std::span<const int32_t> ranks;       // 1: the most likely
  std::span<const int32_t> top_ids;     // [rows, max_logprobs], best first
  std::span<const float> top_logprobs;  // the same
  int32_t max_logprobs = 0;
};

// Offsets of the arrays, in elements of 4 bytes.
struct SampleLayout {
  int64_t tokens, logprobs, ranks, top_ids, top_logprobs, total_bytes;

  SampleLayout(int64_t rows, int64_t alternatives) {
    tokens = 0;
    logprobs = tokens + rows;
    ranks = logprobs + rows;
    top_ids = ranks + rows;
    top_logprobs = top_ids + rows * alternatives;
    total_bytes = (top_logprobs + rows * alternatives) * 4;
  }

  // `rows` of them are filled, with `alternatives` a row.
  StepSamples view(const Buffer& buffer, size_t rows, int32_t alternatives) const {
    const auto* words = buffer.as<int32_t>();
    const auto* floats = buffer.as<float>();
    const size_t most = rows * static_cast<size_t>(alternatives);
    return {.tokens = {words + tokens, rows},
            .logprobs = {floats + logprobs, rows},
            .ranks = {words + ranks, rows},
            .top_ids = {words + top_ids, most},
            .top_logprobs = {floats + top_logprobs, most},
            .max_logprobs = alternatives};
  }
};

}  // namespace zipage
