#include "tokenizer/symbol_joins.h"

#include <algorithm>
#include <utility>

namespace zipage {
namespace {

// The symbol at one end of every token: following that side of a merge which makes the token, until
// no merge makes it. Empty if that depends on the merge.
std::vector<int32_t> end_symbols(const std::vector<Merge>& merges,
                                 int32_t Merge::*side,
                                 int32_t num_tokens) {
  std::vector<int32_t> part(static_cast<size_t>(num_tokens), -1);
  for (const Merge& merge : merges) part[static_cast<size_t>(merge.result)] = merge.*side;
  std::vector<int32_t> ends(part.size());
  for (size_t token = 0; token < part.size(); ++token) {
    auto end = static_cast<int32_t>(token);
    int32_t steps = 0;
    while (part[static_cast<size_t>(end)] >= 0) {
      end = part[static_cast<size_t>(end)];
      if (++steps > num_tokens) return {};  // in a circle
    }
    ends[token] = end;
  }
  const bool same = std::all_of(merges.begin(), merges.end(), [&](const Merge& merge) {
    return ends[static_cast<size_t>(merge.result)] == ends[static_cast<size_t>(merge.*side)];
  });
  return same ? ends : std::vector<int32_t>{};
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
    if (is_symbol[static_cast<size_t>(merge.result)] || merge.result == merge.left ||
        merge.result == merge.right) {
      return;
    }
  }
  const std::vector<int32_t> firsts = end_symbols(merges, &Merge::left, num_tokens);
  const std::vector<int32_t> lasts = end_symbols(merges, &Merge::right, num_tokens);
  if (firsts.empty() || lasts.empty()) return;
  std::vector<std::pair<int32_t, int32_t>> joins;
  joins.reserve(merges.size());
  for (const Merge& merge : merges) {
    joins.emplace_back(lasts[static_cast<size_t>(merge.left)],
                       firsts[static_cast<size_t>(merge.right)]);
  }
  std::sort(joins.begin(), joins.end());
  joins.erase(std::unique(joins.begin(), joins.end()), joins.end());
  pairs_.emplace(2 * joins.size());  // mostly asked for pairs that are not there
  joins_left_.resize(static_cast<size_t>(num_tokens));
  for (const auto& [left, right] : joins) {
    pairs_->insert(left, right, {});
    if (left != right) joins_left_[static_cast<size_t>(right)] = true;
  }
}

}  // namespace zipage
