// Ids to text, whole or piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zipage/tokenizer.h"

#include "tokenizer/vocab.h"

namespace zipage {

// What a decoder does to the text as a whole; what it does to single tokens is in the table of
// bytes.
struct DecoderConfig {
  std::string drop_in_first;      // removed from the first token wherever it occurs ("" : nothing)
  std::string strip_left;         // a character that is taken off the start of the text,
  int64_t max_strip_left = 0;     // so many times at most
  bool join_with_spaces = false;  // there is no decoder: tokens are shown one by one
};

// Immutable, thread-safe.
class TokenDecoder {
 public:
  // `token_bytes`: the bytes that each token adds; `special[id]`: left out on request.
  TokenDecoder(DecoderConfig config,
               const std::vector<std::string>& token_bytes,
               std::vector<bool> special);

  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  // The result must not outlive this.
  std::unique_ptr<IncrementalDecoder> new_decoder(bool skip_special) const;
  std::string_view bytes(int32_t id) const { return bytes_.at(id); }
  bool is_special(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < special_.size() &&
           special_[static_cast<size_t>(id)];
  }

 private:
  friend class StreamDecoder;
  struct State {
    bool first = true;
    int64_t num_stripped = 0;
    bool stripping = true;
  };
  // Appends what `id` adds, possibly half a character.
  void append(int32_t id, bool skip_special, State& state, std::string& out) const;

  DecoderConfig config_;
  StringTable bytes_;
  std::vector<bool> special_;
};

}  // namespace zipage
