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

  // Whether a merge may join text[at - 1] and text[at], 0 < at < text.size(). True may be wrong:
  // one pair in some looks like another.
  bool possible(std::span<const int32_t> text, size_t at) const {
    if (bits_.empty()) return true;
    const uint64_t middle = hash_of_middle(text[at - 1], text[at]);
    const uint64_t before = at >= 2 ? hash_of_before(text[at - 2]) : 0;
    const uint64_t after = at + 1 < text.size() ? hash_of_after(text[at + 1]) : 0;
    return has(middle) || has(middle + before) || has(middle + after) ||
           has(middle + before + after);
  }

  // Whether `right` may join a symbol on its left other than itself.
  bool possible_before(int32_t right) const {
    return bits_.empty() || joins_left_[static_cast<size_t>(right)];
  }

 private:
  // A merge joins two tokens: it can happen where the last symbols of the one and the first of the
  // other are. Two symbols of each are looked at, or the only one (the other is kNone then). Such a
  // place has a hash, which is a sum whose terms for kNone are 0.
  static uint64_t hash_of_middle(int32_t last, int32_t first) {
    return (uint64_t{static_cast<uint32_t>(last)} << 32 | static_cast<uint32_t>(first)) *
           0x9E3779B97F4A7C15u;
  }
  static uint64_t hash_of_before(int32_t symbol) {
    return static_cast<uint32_t>(symbol + 1) * 0xC2B2AE3D27D4EB4Fu;
  }
  static uint64_t hash_of_after(int32_t symbol) {
    return static_cast<uint32_t>(symbol + 1) * 0x165667B19E3779F9u;
  }
  size_t bit_of(uint64_t hash) const {
    return static_cast<size_t>((hash ^ hash >> 32) * 0x9E3779B97F4A7C15u >> shift_);
  }
  bool has(uint64_t hash) const {
    const size_t bit = bit_of(hash);
    return (bits_[bit >> 6] >> (bit & 63) & 1) != 0;
  }

  std::vector<uint64_t> bits_;  // by the hash of a place; empty: nothing is known, all may join
  int shift_ = 0;
  std::vector<bool> joins_left_;  // by symbol
};

}  // namespace zipage
