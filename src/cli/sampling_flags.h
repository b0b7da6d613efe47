// Flags of SamplingParams, shared by run, chat and bench.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zipage/engine.h"

namespace zipage::cli {

class SamplingFlags {
 public:
  void add_to(CLI::App& command);
  // The model's defaults with what the flags say on top.
  SamplingParams params(const SamplingParams& defaults) const;

 private:
  std::optional<double> temperature_, top_p_, min_p_, typical_p_, presence_penalty_,
      frequency_penalty_, repetition_penalty_;
  std::optional<int32_t> top_k_;
  std::optional<int64_t> max_tokens_;
  std::optional<uint64_t> request_seed_;
  int64_t min_tokens_ = 0;
  std::vector<std::string> stop_;
  bool ignore_eos_ = false;
};

}  // namespace zipage::cli
