// Text to ids when all else is done to it: it is cut into words, and these are merged.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/cuts.h"
#include "tokenizer/word_cache.h"

namespace zipage {

// Immutable but for memories of what came out; encode() is thread-safe.
class WordEncoder {
 public:
  WordEncoder(std::vector<Pattern> cuts, std::unique_ptr<const BpeModel> model);

  // Appends the ids of `text`, valid UTF-8.
  void encode(std::string_view text, BpeModel::Scratch& scratch, std::vector<int32_t>& out) const {
    encode_from(0, text, true, scratch, out);
  }

 private:
  void encode_from(size_t step,
                   std::string_view text,
                   bool use_cache,
                   BpeModel::Scratch& scratch,
                   std::vector<int32_t>& out) const;
  void encode_word(std::string_view word,
                   BpeModel::Scratch& scratch,
                   std::vector<int32_t>& out) const;
  // Appends what `text` became when it was here with `tag`; if it was not, what encode() appends.
  template <typename Encode>
  void remembered(std::string_view text,
                  uint8_t tag,
                  std::vector<int32_t>& out,
                  const Encode& encode) const;

  std::unique_ptr<const BpeModel> model_;
  Cuts cuts_;
  mutable WordCache cache_;
};

}  // namespace zipage
