#include "tokenizer/symbol_joins.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace zipage {
namespace {

constexpr int32_t kNone = SymbolJoins::kNone;
constexpr size_t kBitsPerPlace = 16;
constexpr int kMaxPasses = 64;

// The symbols at both ends of a token.
struct Ends {
  int32_t first = kNone;
  int32_t second = kNone;  // kNone: there is only one
  int32_t second_last = kNone;
  int32_t last = kNone;
  bool operator==(const Ends&) const = default;
};

Ends joined(const Ends& left, const Ends& right) {
  return {left.first, left.second != kNone ? left.second : right.first,
          right.second_last != kNone ? right.second_last : left.last, right.last};
}

// By token. None if they depend on the merges by which a token is made, or a token is part of
// itself.
std::optional<std::vector<Ends>> ends_of_tokens(const std::vector<Merge>& merges,
                                                int32_t num_tokens) {
  std::vector<Ends> ends(static_cast<size_t>(num_tokens));
  for (int32_t token = 0; token < num_tokens; ++token) {
    ends[static_cast<size_t>(token)] = {token, kNone, kNone, token};
  }
  const auto of = [&](int32_t token) -> Ends& { return ends[static_cast<size_t>(token)]; };
  for (const Merge& merge : merges) of(merge.result) = {};
  bool again = true;
  for (int pass = 0; again; ++pass) {
    if (pass == kMaxPasses) return std::nullopt;
    again = false;
    for (const Merge& merge : merges) {
      Ends& result = of(merge.result);
      if (of(merge.left).first == kNone || of(merge.right).first == kNone) {
        again = true;
        continue;
      }
      const Ends ours = joined(of(merge.left), of(merge.right));
      if (result.first == kNone) result = ours;
      if (result != ours) return std::nullopt;
    }
  }
  return ends;
}

}  // namespace

SymbolJoins::SymbolJoins(const std::vector<Merge>& merges,
                         std::span<const int32_t> symbols,
                         int32_t num_tokens) {
  std::vector<bool> is_symbol(static_cast<size_t>(num_tokens));
  for (const int32_t id : symbols) {
    if (id >= 0) is_symbol[static_cast<size_t>(id)] = true;
  }
  for (const Merge& merge : merges) {
    if (is_symbol[static_cast<size_t>(merge.result)]) return;
  }
  const auto ends = ends_of_tokens(merges, num_tokens);
  if (!ends) return;
  std::vector<uint64_t> places;  // their hashes
  places.reserve(merges.size());
  joins_left_.resize(static_cast<size_t>(num_tokens));
  for (const Merge& merge : merges) {
    const Ends& left = (*ends)[static_cast<size_t>(merge.left)];
    const Ends& right = (*ends)[static_cast<size_t>(merge.right)];
    places.push_back(hash_of_middle(left.last, right.first) + hash_of_before(left.second_last) +
                     hash_of_after(right.second));
    if (left.last != right.first) joins_left_[static_cast<size_t>(right.first)] = true;
  }
  // Many are the same place: the second time there is room for those that differ only.
  for (size_t num_places = places.size(), pass = 0; pass < 2; ++pass) {
    const size_t num_bits = std::bit_ceil(std::max<size_t>(64, kBitsPerPlace * num_places));
    bits_.assign(num_bits / 64, 0);
    shift_ = 64 - std::countr_zero(num_bits);
    for (const uint64_t place : places) {
      const size_t bit = bit_of(place);
      bits_[bit >> 6] |= uint64_t{1} << (bit & 63);
    }
    num_places = 0;
    for (const uint64_t word : bits_) num_places += static_cast<size_t>(std::popcount(word));
  }
}

}  // namespace zipage
