// Which tokens end an answer.
//
// A model's files often disagree: generation_config.json and config.json name the end of a text,
// the tokenizer's eos_token the end of a turn, or the other way round, and some GGUF files name one
// of the two only. An answer that meets a token of any of them has ended; taking just one file's
// word makes answers run to max_tokens. Loading thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zipage/tokenizer.h"

#include "model/config.h"
#include "model/generation_config.h"

namespace zipage {

struct EndTokens {
  std::vector<int32_t> ids;  // without repetition, each below vocab_size
  std::string description;   // "<|im_end|> (2), <|endoftext|> (0)"; empty when there is none
  std::vector<int32_t> out_of_range;  // named by a file, but no row of the head: can never be drawn
};

// The union of what the generation config, the config and the tokenizer name, and of the tokens
// that are known to end a turn (<|im_end|>, <|eot_id|>, ...) where the vocabulary has them as
// control tokens. `tokenizer` may be null.
EndTokens collect_end_tokens(const GenerationConfig& generation,
                             const ModelConfig& config,
                             const Tokenizer* tokenizer);

}  // namespace zipage
