// tokenizer.json and its companions in a model folder.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/parts.h"

namespace zipage {

// `text`: the contents of a tokenizer.json; `file`: its name for messages. Throws Error.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file);

// tokenizer_config.json: names of tokens, chat templates, whether BOS is added. Throws Error.
void read_tokenizer_config(std::string_view text, const std::string& file, TokenizerParts& parts);

}  // namespace zipage
