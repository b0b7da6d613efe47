#include "cli/sampling_flags.h"

namespace zipage::cli {

void SamplingFlags::add_to(CLI::App& command) {
  const std::string group = "Sampling";
  const auto add = [&](const std::string& names, auto& value, const std::string& help) {
    command.add_option(names, value, help)->group(group);
  };
  add("--temperature,--temp", temperature_, "0: greedy (default: the model's)");
  add("--top-p", top_p_, "Probability mass that stays");
  add("--top-k", top_k_, "Tokens that stay (0: all)");
  add("--min-p", min_p_, "Least probability, relative to the best token's");
  add("--typical-p", typical_p_, "Mass of locally typical tokens that stays");
  add("--presence-penalty", presence_penalty_, "For tokens in the output");
  add("--frequency-penalty", frequency_penalty_, "For each time a token is in the output");
  add("--repetition-penalty", repetition_penalty_, "For tokens in prompt and output (1: none)");
  add("--max-tokens", max_tokens_, "Most output tokens (default: up to the model's length)");
  add("--min-tokens", min_tokens_, "Output tokens before a stop counts");
  add("--stop", stop_, "Text that ends the output; repeatable");
  add("--sampling-seed", request_seed_, "Seed of the draws");
  command.add_flag("--ignore-eos", ignore_eos_, "Go on after the end token")->group(group);
}

SamplingParams SamplingFlags::params(const SamplingParams& defaults) const {
  SamplingParams p = defaults;
  p.temperature = temperature_.value_or(p.temperature);
  p.top_p = top_p_.value_or(p.top_p);
  p.top_k = top_k_.value_or(p.top_k);
  p.min_p = min_p_.value_or(p.min_p);
  p.typical_p = typical_p_.value_or(p.typical_p);
  p.presence_penalty = presence_penalty_.value_or(p.presence_penalty);
  p.frequency_penalty = frequency_penalty_.value_or(p.frequency_penalty);
  p.repetition_penalty = repetition_penalty_.value_or(p.repetition_penalty);
  p.max_tokens = max_tokens_;
  p.min_tokens = min_tokens_;
  p.stop = stop_;
  p.seed = request_seed_;
  p.ignore_eos = ignore_eos_;
  return p;
}

}  // namespace zipage::cli
