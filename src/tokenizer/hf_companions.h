// The files beside tokenizer.json that say more about its tokens: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json. Read as transformers reads them, so that a token
// that only one of them lists is one id here too. Loading thread only.
#pragma once

#include <optional>
#include <string>

#include "tokenizer/parts.h"

namespace zipage {

struct NamedText {
  std::string text;
  std::string file;  // for messages
};

struct CompanionFiles {
  std::optional<NamedText> tokenizer_config = std::nullopt;
  // Read only if tokenizer_config has no added_tokens_decoder: files of before 2023.
  std::optional<NamedText> special_tokens_map = std::nullopt;
  std::optional<NamedText> added_tokens = std::nullopt;
};

// Names of tokens, tokens that tokenizer.json lacks, chat templates, whether BOS is added. `parts`
// are those of the tokenizer.json. Throws Error naming the file and the field.
void read_companion_files(const CompanionFiles& files, TokenizerParts& parts);

}  // namespace zipage
