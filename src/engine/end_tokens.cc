#include "engine/end_tokens.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace zipage {
namespace {

// As llama.cpp knows them by their text. None of these is ever part of an answer's text where it is
// a control token.
constexpr std::array<const char*, 17> kKnownEnds = {"<|im_end|>",
                                                    "<|eot_id|>",
                                                    "<|eom_id|>",
                                                    "<|eot|>",
                                                    "<end_of_turn>",
                                                    "<|end|>",
                                                    "<|return|>",
                                                    "<|call|>",
                                                    "<|endoftext|>",
                                                    "</s>",
                                                    "<EOT>",
                                                    "_<EOT>",
                                                    "[EOT]",
                                                    "[EOS]",
                                                    "<eos>",
                                                    "<|end_of_text|>",
                                                    "<end_of_utterance>"};

}  // namespace

EndTokens collect_end_tokens(const GenerationConfig& generation,
                             const ModelConfig& config,
                             const Tokenizer* tokenizer) {
  EndTokens ends;
  const auto add = [&](int32_t id) {
    auto& list = id < config.vocab_size ? ends.ids : ends.out_of_range;
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  for (const int32_t id : generation.eos_token_ids) add(id);
  for (const int32_t id : config.eos_token_ids) add(id);
  if (tokenizer != nullptr) {
    if (const auto id = tokenizer->eos_id()) add(*id);
    for (const char* text : kKnownEnds) {
      const auto id = tokenizer->token_to_id(text);
      if (id && tokenizer->is_special(*id) && *id < config.vocab_size) add(*id);
    }
  }
  for (const int32_t id : ends.ids) {
    if (!ends.description.empty()) ends.description += ", ";
    const std::string text = tokenizer == nullptr ? "" : tokenizer->id_to_token(id);
    ends.description += text.empty() ? fmt::format("{}", id) : fmt::format("{} ({})", text, id);
  }
  return ends;
}

}  // namespace zipage
