// What a tokenizer is made of, whatever file it came from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zipage/tokenizer.h"

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"

namespace zipage {

struct TokenizerParts {
  std::vector<std::string> tokens;  // by id, as the file writes them; "" where there is none
  int32_t num_vocab = 0;            // of them those of the model's own vocabulary
  std::vector<AddedToken> added;
  std::vector<bool> special;                    // by id
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::vector<Pattern> cuts;                    // after it
  std::unique_ptr<BpeModel> model;
  std::vector<int32_t> prefix_ids;  // what add_special_tokens puts around the text
  std::vector<int32_t> suffix_ids;
  bool has_template = false;  // the file said so itself
  DecoderConfig decoder;
  std::vector<std::string> token_bytes;  // by id: what decoding adds
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // For the chat template: "bos_token" and the like, and the templates by name ("default" is used).
  std::map<std::string, std::string> named_tokens;
  std::map<std::string, std::string> chat_templates;
  std::vector<std::string> warnings;  // see Tokenizer::warnings()
};

// `name`: of the file, for messages.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts, const std::string& name);

// `vocab`: the ids of the tokens that the model itself knows, by their text in the file.
std::unique_ptr<BpeModel> make_bpe_model(const BpeConfig& config,
                                         const std::vector<std::string>& tokens,
                                         const std::vector<Merge>& merges,
                                         StringIndex vocab);

}  // namespace zipage
