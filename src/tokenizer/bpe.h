// Byte-pair encoding: a word's symbols are joined, the pair of the lowest rank first, the leftmost
// of equals. SentencePiece's score-driven merging is the same with ranks that stand for scores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

namespace zipage {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
  uint32_t rank;
};

struct BpeConfig {
  bool byte_level = true;      // the first symbols are bytes; else UTF-8 characters
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // a character without a token becomes its bytes' tokens
  bool fuse_unk = false;       // neighbouring unknown characters are one unknown token
  int32_t unk_id = -1;         // -1: unknown characters are dropped
  // No merge joins another character with a following U+2581, so that text may be cut there.
  bool cut_before_metaspace = false;
};

// Immutable but for a memo; encode() is thread-safe.
class BpeModel {
 public:
  // `words`: the bytes of the tokens that merging may make. `byte_ids`: the token of each byte, -1
  // if there is none; without byte_level those of the form <0x41>. Of equal pairs the first counts.
  BpeModel(const BpeConfig& config,
           StringIndex words,
           const std::vector<Merge>& merges,
           const std::array<int32_t, 256>& byte_ids,
           int32_t num_tokens);

  // Appends the ids of `word`, valid UTF-8 unless byte_level. O(n log n). `cache`: of this model
  // alone, or null.
  void encode(std::string_view word, std::vector<int32_t>& out, WordCache* cache = nullptr) const;

 private:
  struct Joined {
    uint32_t rank;
    int32_t id;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShortSymbols = 48;

  Joined find_merge(int32_t left, int32_t right) const {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    for (size_t i = (key * kPairMultiplier) >> pair_shift_;; i = (i + 1) & pair_mask_) {
      const PairEntry& entry = pairs_[i];
      if (entry.key == key) return {entry.rank, entry.id};
      if (entry.key == kNoPair) return {kNoRank, -1};
    }
  }
  void encode_cached(std::string_view chunk, std::vector<int32_t>& out, WordCache* cache) const;
  void encode_chunk(std::string_view chunk, std::vector<int32_t>& out) const;
  void append_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const;
  size_t merge_short(int32_t* ids, size_t count) const;
  void merge_long(const std::vector<int32_t>& symbols, std::vector<int32_t>& out) const;

  static constexpr uint64_t kPairMultiplier = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct PairEntry {
    uint64_t key = kNoPair;
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  BpeConfig config_;
  StringIndex words_;
  size_t max_word_bytes_ = 0;
  std::array<int32_t, 256> byte_ids_;
  std::vector<PairEntry> pairs_;
  size_t pair_mask_ = 0;
  int pair_shift_ = 0;
  // By token: whether merging its own bytes ends in that one token. 0: not tried yet, 1: yes, 2:
  // no. Every thread finds the same answer, so that races are harmless.
  mutable std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace zipage
