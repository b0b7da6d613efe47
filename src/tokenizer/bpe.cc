#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tokenizer/utf8.h"

namespace zipage {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581
constexpr uint8_t kWhole = 1;
constexpr uint8_t kNotWhole = 2;

// The end of the chunk that starts at `begin`: the next U+2581 that does not follow another one.
size_t chunk_end(std::string_view word, size_t begin) {
  size_t from = begin;
  while (word.substr(from).starts_with(kMetaspace)) from += kMetaspace.size();
  const size_t end = word.find(kMetaspace, from);
  return end == std::string_view::npos ? word.size() : end;
}

}  // namespace

BpeModel::BpeModel(const BpeConfig& config,
                   StringIndex words,
                   const std::vector<Merge>& merges,
                   const std::array<int32_t, 256>& byte_ids,
                   int32_t num_tokens)
    : config_(config), words_(std::move(words)), byte_ids_(byte_ids) {
  max_word_bytes_ = words_.max_length();
  pairs_.resize(std::max<size_t>(16, std::bit_ceil(2 * merges.size() + 2)));
  pair_mask_ = pairs_.size() - 1;
  pair_shift_ = 64 - std::countr_zero(pairs_.size());
  for (const Merge& merge : merges) {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(merge.left)} << 32) | static_cast<uint32_t>(merge.right);
    size_t i = (key * kPairMultiplier) >> pair_shift_;
    while (pairs_[i].key != kNoPair && pairs_[i].key != key) i = (i + 1) & pair_mask_;
    if (pairs_[i].key == kNoPair) pairs_[i] = {key, merge.rank, merge.result};
  }
  whole_ = std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(num_tokens));
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& out, WordCache* cache) const {
  if (!config_.cut_before_metaspace) {
    encode_cached(word, out, cache);
    return;
  }
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = chunk_end(word, begin);
    encode_cached(word.substr(begin, end - begin), out, cache);
    begin = end;
  }
}

void BpeModel::encode_cached(std::string_view chunk,
                             std::vector<int32_t>& out,
                             WordCache* cache) const {
  if (cache == nullptr || !WordCache::fits(chunk)) {
    encode_chunk(chunk, out);
    return;
  }
  const WordCache::Key key(chunk, 0);
  if (const auto ids = cache->find(key); ids.data() != nullptr) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  const size_t old_size = out.size();
  encode_chunk(chunk, out);
  cache->store(key, std::span(out).subspan(old_size));
}

void BpeModel::encode_chunk(std::string_view chunk, std::vector<int32_t>& out) const {
  int32_t token = -1;
  if (chunk.size() <= max_word_bytes_) {
    token = words_.find(chunk);
    if (token >= 0 && (config_.ignore_merges || whole_[static_cast<size_t>(token)].load(
                                                    std::memory_order_relaxed) == kWhole)) {
      out.push_back(token);
      return;
    }
  }
  const size_t old_size = out.size();
  if (config_.byte_level && chunk.size() <= kShortSymbols) {
    int32_t ids[kShortSymbols];
    size_t count = 0;
    for (const char c : chunk) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) {
        ids[count++] = id;
      } else if (config_.unk_id >= 0) {
        ids[count++] = config_.unk_id;
      }
    }
    count = merge_short(ids, count);
    out.insert(out.end(), ids, ids + count);
  } else {
    std::vector<int32_t> symbols;
    symbols.reserve(chunk.size());
    append_symbols(chunk, symbols);
    if (symbols.size() <= kShortSymbols) {
      const size_t count = merge_short(symbols.data(), symbols.size());
      out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(count));
    } else {
      merge_long(symbols, out);
    }
  }
  if (token >= 0) {
    const bool whole = out.size() == old_size + 1 && out.back() == token;
    whole_[static_cast<size_t>(token)].store(whole ? kWhole : kNotWhole, std::memory_order_relaxed);
  }
}

void BpeModel::append_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const {
  if (config_.byte_level) {
    for (const char c : chunk) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) {
        symbols.push_back(id);
      } else if (config_.unk_id >= 0) {
        symbols.push_back(config_.unk_id);
      }
    }
    return;
  }
  bool after_unknown = false;
  for (size_t i = 0; i < chunk.size();) {
    const size_t length = std::min(utf8_length(chunk[i]), chunk.size() - i);
    const std::string_view character = chunk.substr(i, length);
    i += length;
    if (const int32_t id = words_.find(character); id >= 0) {
      symbols.push_back(id);
      after_unknown = false;
      continue;
    }
    if (config_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
          return byte_ids_[static_cast<uint8_t>(c)] >= 0;
        })) {
      for (const char c : character) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      after_unknown = false;
      continue;
    }
    if (config_.unk_id >= 0 && !(config_.fuse_unk && after_unknown)) {
      symbols.push_back(config_.unk_id);
    }
    after_unknown = true;
  }
}

size_t BpeModel::merge_short(int32_t* ids, size_t count) const {
  if (count < 2) return count;
  Joined joined[kShortSymbols];  // joined[i]: what ids[i] and ids[i + 1] would become
  for (size_t i = 0; i + 1 < count; ++i) joined[i] = find_merge(ids[i], ids[i + 1]);
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
    if (best > 0) joined[best - 1] = find_merge(ids[best - 1], ids[best]);
    if (best + 1 < count) joined[best] = find_merge(ids[best], ids[best + 1]);
  }
  return count;
}

void BpeModel::merge_long(const std::vector<int32_t>& symbols, std::vector<int32_t>& out) const {
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t left;  // the ids when it was queued: it is stale if they have changed
    int32_t right;
    int32_t result;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    list[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1,
                                    i + 1 < count ? i + 1 : -1};
  }
  const auto at = [&](int32_t i) -> Symbol& { return list[static_cast<size_t>(i)]; };
  std::vector<Candidate> heap;
  const auto candidate = [&](int32_t position, Candidate& entry) {
    const int32_t next = at(position).next;
    if (next < 0) return false;
    const Joined joined = find_merge(at(position).id, at(next).id);
    entry = {joined.rank, position, at(position).id, at(next).id, joined.id};
    return joined.rank != kNoRank;
  };
  Candidate entry;
  for (int32_t i = 0; i < count; ++i) {
    if (candidate(i, entry)) heap.push_back(entry);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto queue = [&](int32_t position) {
    if (position >= 0 && candidate(position, entry)) {
      heap.push_back(entry);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = at(best.position);
    if (left.id != best.left || left.next < 0 || at(left.next).id != best.right) continue;
    Symbol& right = at(left.next);
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = best.position;
    queue(left.previous);
    queue(best.position);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = at(i).next) out.push_back(at(i).id);
}

}  // namespace zipage
