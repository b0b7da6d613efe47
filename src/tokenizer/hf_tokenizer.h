// tokenizer.json of a model folder. See hf_companions.h for the files beside it.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/parts.h"

namespace zipage {

// `text`: the contents of a tokenizer.json; `file`: its name for messages. Throws Error.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file);

class JsonView;

// The text and flags of an added token, as several files write them. It has no id yet.
AddedToken read_added_token(const JsonView& json);

}  // namespace zipage
