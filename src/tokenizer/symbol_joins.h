// Which neighbouring symbols any merge, however late, may bring into one token. Text may be cut
// between all others: what is on one side has no part in what becomes of the other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/pair_table.h"

namespace zipage {

class SymbolJoins {
 public:
  // `symbols`: ids with which merging may begin though they are not single characters or bytes.
  SymbolJoins(const std::vector<Merge>& merges,
              std::span<const int32_t> symbols,
              int32_t num_tokens);

  bool possible(int32_t left, int32_t right) const {
    return !pairs_ || pairs_->find(left, right) != nullptr;
  }
  // Whether `right` may join a symbol on its left other than itself.
  bool possible_before(int32_t right) const {
    return !pairs_ || joins_left_[static_cast<size_t>(right)];
  }

 private:
  struct Nothing {};
  std::optional<PairTable<Nothing>> pairs_;  // none: nothing is known, all may join
  std::vector<bool> joins_left_;  // by symbol
};

}  // namespace zipage
