// Where merging cannot reach across: between two symbols that no merge, however late, brings into
// one token. Text may be cut there: what is on one side has no part in what becomes of the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/merge.h"

namespace zipage {

class SymbolJoins {
 public:
  static constexpr int32_t kNone = -1;

  // `symbols`: ids with which merging may begin though they are not single characters or bytes.
  SymbolJoins(const std::vector<Merge>& merges,
              std::span<const int32_t> symbols,
              int32_t num_tokens);

  // Whether a merge may join text[at - 1] and text[at], 0 < at < text.size(). True may be wrong: one
  // pair in some looks like another.
  bool possible(std::span<const int32_t> text, size_t at) const;

  // Whether `right` may join a symbol on its left other than itself.
  bool possible_before(int32_t right) const {
    return bits_.empty() || joins_left_[static_cast<size_t>(right)];
  }

 private:
  // A merge joins two tokens: it can happen where the last symbols of the one and the first of the
  // other are. Two symbols of each are looked at, or the only one (the other is kNone then).
  struct Place {
    int32_t before, last, first, after;
  };
  size_t bit_of(const Place& place) const;
  bool has(const Place& place) const {
    const size_t bit = bit_of(place);
    return (bits_[bit >> 6] >> (bit & 63) & 1) != 0;
  }
  void add(const std::vector<Place>& places);

  std::vector<uint64_t> bits_;  // by the hash of a place; empty: nothing is known, all may join
  int shift_ = 0;
  std::vector<bool> joins_left_;  // by symbol
};

}  // namespace zipage
