#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "tokenizer/utf8.h"

namespace zipage {
namespace {

constexpr uint8_t kWhole = 1;
constexpr uint8_t kNotWhole = 2;

// The symbols that are neither a character nor, with byte_level, a byte.
std::vector<int32_t> other_symbols(const BpeConfig& config,
                                   const std::array<int32_t, 256>& byte_ids) {
  std::vector<int32_t> symbols;
  if (config.unk_id >= 0) symbols.push_back(config.unk_id);
  if (!config.byte_level) symbols.insert(symbols.end(), byte_ids.begin(), byte_ids.end());
  return symbols;
}

// The merges that can come first: all but those of tokens that are only made by merging.
std::vector<Merge> merges_of_symbols(const std::vector<Merge>& merges,
                                     std::span<const int32_t> other_symbols,
                                     int32_t num_tokens) {
  std::vector<bool> comes_later(static_cast<size_t>(num_tokens));
  for (const Merge& merge : merges) {
    if (merge.result != merge.left && merge.result != merge.right) {
      comes_later[static_cast<size_t>(merge.result)] = true;
    }
  }
  for (const int32_t id : other_symbols) {
    if (id >= 0) comes_later[static_cast<size_t>(id)] = false;
  }
  std::vector<Merge> out;
  std::copy_if(merges.begin(), merges.end(), std::back_inserter(out), [&](const Merge& merge) {
    return !comes_later[static_cast<size_t>(merge.left)] &&
           !comes_later[static_cast<size_t>(merge.right)];
  });
  return out;
}

}  // namespace

BpeModel::BpeModel(const BpeConfig& config,
                   StringIndex words,
                   const std::vector<Merge>& merges,
                   const std::array<int32_t, 256>& byte_ids,
                   int32_t num_tokens)
    : config_(config),
      words_(std::move(words)),
      byte_ids_(byte_ids),
      merges_(merges.size()),
      symbol_merges_(0),
      joins_(merges, other_symbols(config, byte_ids), num_tokens),
      whole_(std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(num_tokens))) {
  for (const Merge& merge : merges) {
    merges_.insert(merge.left, merge.right, {merge.rank, merge.result});
  }
  const std::vector<Merge> first =
      merges_of_symbols(merges, other_symbols(config, byte_ids), num_tokens);
  symbol_merges_ = MergeTable(2 * first.size());  // most pairs are not there
  for (const Merge& merge : first) {
    symbol_merges_.insert(merge.left, merge.right, {merge.rank, merge.result});
  }
  if (config.byte_level) return;
  character_ids_.assign(kNumCharacterIds, -1);
  words_.for_each([&](std::string_view word, int32_t id) {
    if (word.empty() || word.size() != utf8_length(word[0])) return;
    const Utf8Step character = read_utf8(word, 0);
    if (character.valid && character.code_point < kNumCharacterIds) {
      character_ids_[character.code_point] = id;
    }
  });
}

int32_t BpeModel::find_whole(std::string_view word) const {
  const int32_t token = find_word(word);
  return token >= 0 && (config_.ignore_merges || is_whole(token)) ? token : -1;
}

void BpeModel::cut(std::string_view word, Scratch& scratch, PartSink sink) const {
  std::vector<int32_t>& symbols = scratch.text_symbols;
  std::vector<size_t>& begins = scratch.text_begins;
  symbols.resize(word.size());  // there are not more than bytes
  begins.resize(word.size() + 1);
  size_t count = 0;
  for_each_symbol(word, [&](int32_t id, size_t at) {
    symbols[count] = id;
    begins[count++] = at;
  });
  if (count == 0) return;
  begins[count] = word.size();
  const std::span<const int32_t> all(symbols.data(), count);
  size_t first = 0;
  for (size_t i = 1; i <= count; ++i) {
    // Several symbols may come from one character.
    if (i < count && (begins[i] == begins[i - 1] || joins_.possible(all, i))) continue;
    sink(word.substr(begins[first], begins[i] - begins[first]),
         i - first == 1 ? symbols[first] : -1);
    first = i;
  }
}

void BpeModel::encode_part(std::string_view part,
                           Scratch& scratch,
                           std::vector<int32_t>& out) const {
  const int32_t token = find_word(part);
  if (token >= 0 && is_whole(token)) {
    out.push_back(token);
    return;
  }
  std::vector<int32_t>& symbols = scratch.symbols;
  symbols.clear();
  for_each_symbol(part, [&](int32_t id, size_t) { symbols.push_back(id); });
  const size_t old_size = out.size();
  if (symbols.size() <= kShortSymbols) {
    const size_t count = merge_short(symbols.data(), symbols.size());
    out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(count));
  } else {
    merge_long(scratch, out);
  }
  if (token >= 0) {
    const bool whole = out.size() == old_size + 1 && out.back() == token;
    whole_[static_cast<size_t>(token)].store(whole ? kWhole : kNotWhole, std::memory_order_relaxed);
  }
}

bool BpeModel::may_cut_before(std::string_view character) const {
  if (config_.byte_level || config_.ignore_merges) return false;
  const int32_t id = find_character(character);
  return id >= 0 && !joins_.possible_before(id);
}

bool BpeModel::is_whole(int32_t token) const {
  return whole_[static_cast<size_t>(token)].load(std::memory_order_relaxed) == kWhole;
}

int32_t BpeModel::find_character(std::string_view character) const {
  if (character.size() == 1) return character_ids_[static_cast<uint8_t>(character[0])];
  const char32_t code_point = read_utf8(character, 0).code_point;
  return code_point < kNumCharacterIds ? character_ids_[code_point] : words_.find(character);
}

// Calls sink(id, where its character begins).
template <typename Sink>
void BpeModel::for_each_symbol(std::string_view word, const Sink& sink) const {
  if (config_.byte_level) {
    for (size_t i = 0; i < word.size(); ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(word[i])];
      if (id >= 0) {
        sink(id, i);
      } else if (config_.unk_id >= 0) {
        sink(config_.unk_id, i);
      }
    }
    return;
  }
  bool after_unknown = false;
  for (size_t i = 0, length = 0; i < word.size(); i += length) {
    length = std::min(utf8_length(word[i]), word.size() - i);
    const std::string_view character = word.substr(i, length);
    if (const int32_t id = find_character(character); id >= 0) {
      sink(id, i);
      after_unknown = false;
      continue;
    }
    if (config_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
          return byte_ids_[static_cast<uint8_t>(c)] >= 0;
        })) {
      for (size_t k = 0; k < length; ++k) sink(byte_ids_[static_cast<uint8_t>(word[i + k])], i);
      after_unknown = false;
      continue;
    }
    if (config_.unk_id >= 0 && !(config_.fuse_unk && after_unknown)) sink(config_.unk_id, i);
    after_unknown = true;
  }
}

// Joins ids[0, count) in place; how many are left.
size_t BpeModel::merge_short(int32_t* ids, size_t count) const {
  if (count < 2) return count;
  Joined joined[kShortSymbols];  // joined[i]: what ids[i] and ids[i + 1] would become
  for (size_t i = 0; i + 1 < count; ++i) {
    joined[i] = find_merge(symbol_merges_, ids[i], ids[i + 1]);
  }
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (joined[i].rank < joined[best].rank) best = i;
    }
    if (joined[best].rank == kNoRank) break;
    ids[best] = joined[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      joined[i - 1] = joined[i];
    }
    --count;
    if (best > 0) joined[best - 1] = find_merge(merges_, ids[best - 1], ids[best]);
    if (best + 1 < count) joined[best] = find_merge(merges_, ids[best], ids[best + 1]);
  }
  return count;
}

void BpeModel::merge_long(Scratch& scratch, std::vector<int32_t>& out) const {
  const auto count = static_cast<int32_t>(scratch.symbols.size());
  auto& list = scratch.list;
  auto& heap = scratch.heap;  // rank and position; stale if the rank there is another by now
  const auto at = [&](int32_t i) -> Scratch::Symbol& { return list[static_cast<size_t>(i)]; };
  const auto find = [&](const MergeTable& table, int32_t position) {
    Scratch::Symbol& symbol = at(position);
    const Joined joined =
        symbol.next < 0 ? Joined{} : find_merge(table, symbol.id, at(symbol.next).id);
    symbol.rank = joined.rank;
    symbol.joined = joined.id;
    if (joined.rank == kNoRank) return false;
    heap.push_back(uint64_t{joined.rank} << 32 | static_cast<uint32_t>(position));
    return true;
  };
  const auto queue = [&](int32_t position) {
    if (find(merges_, position)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  list.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    list.push_back({.id = scratch.symbols[static_cast<size_t>(i)],
                    .previous = i - 1,
                    .next = i + 1 < count ? i + 1 : -1,
                    .joined = -1,
                    .rank = kNoRank});
  }
  for (int32_t i = 0; i < count; ++i) find(symbol_merges_, i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(best & UINT32_MAX);
    Scratch::Symbol& left = at(position);
    if (left.rank != best >> 32) continue;
    Scratch::Symbol& right = at(left.next);
    left.id = left.joined;
    left.next = right.next;
    right.rank = kNoRank;  // it is gone
    if (left.next >= 0) at(left.next).previous = position;
    if (left.previous >= 0) queue(left.previous);
    queue(position);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = at(i).next) out.push_back(at(i).id);
}

}  // namespace zipage
