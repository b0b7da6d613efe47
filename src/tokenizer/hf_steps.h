// The steps around the model in a tokenizer.json: normalizer, pre_tokenizer, post_processor,
// decoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/json_view.h"
#include "tokenizer/parts.h"

namespace zipage {

std::unique_ptr<Normalizer> read_normalizer(const JsonView& json);

// Fills parts.pre_tokenizer and cuts. `byte_level` is set if the pieces are to be merged as bytes.
void read_pre_tokenizer(const JsonView& json, TokenizerParts& parts, bool& byte_level);

// Fills parts.prefix_ids, suffix_ids; looks tokens up in parts.tokens.
void read_post_processor(const JsonView& json, TokenizerParts& parts);

// Fills parts.decoder and parts.token_bytes from parts.tokens; `json` null: there is no decoder.
void read_decoder(const JsonView* json, TokenizerParts& parts);

// The byte that "<0x41>" stands for; -1 if the token has another form.
int byte_of_token(std::string_view token);
std::string byte_string(int byte);

}  // namespace zipage
