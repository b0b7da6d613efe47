// Byte-pair encoding: a word's symbols are joined, the pair of the lowest rank first, the leftmost
// of equals. SentencePiece's score-driven merging is the same with ranks that stand for scores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/merge.h"
#include "tokenizer/pair_table.h"
#include "tokenizer/symbol_joins.h"
#include "tokenizer/vocab.h"

namespace zipage {

struct BpeConfig {
  bool byte_level = true;      // the first symbols are bytes; else UTF-8 characters
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // a character without a token becomes its bytes' tokens
  bool fuse_unk = false;       // neighbouring unknown characters are one unknown token
  int32_t unk_id = -1;         // -1: unknown characters are dropped
};

// Immutable but for a memo; encode() is thread-safe.
class BpeModel {
 public:
  // Memory that calls of one thread share.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
      int32_t joined;  // what this symbol and the next would become
      uint32_t rank;
    };
    std::vector<int32_t> text_symbols;  // of cut()
    std::vector<size_t> text_begins;
    std::vector<int32_t> symbols;
    std::vector<Symbol> list;
    std::vector<uint64_t> heap;
  };

  // `words`: the bytes of the tokens that merging may make. `byte_ids`: the token of each byte, -1
  // if there is none; without byte_level those of the form <0x41>. Of equal pairs the first counts.
  BpeModel(const BpeConfig& config,
           StringIndex words,
           const std::vector<Merge>& merges,
           const std::array<int32_t, 256>& byte_ids,
           int32_t num_tokens);

  // The token that a whole `word` is known to become; -1: the parts that cut() makes of it tell.
  int32_t find_whole(std::string_view word) const;
  // Calls sink for parts of `word`, valid UTF-8 unless byte_level: each merges apart from the
  // others. `only`: the id of a part that is a single symbol, else -1.
  using PartSink = FunctionRef<void(std::string_view part, int32_t only)>;
  void cut(std::string_view word, Scratch& scratch, PartSink sink) const;
  // Appends the ids of a part. O(n log n).
  void encode_part(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const;

  // Whether a text may be cut before each `character` that does not follow another one, and the
  // parts be encoded apart. Only if the symbols are characters.
  bool may_cut_before(std::string_view character) const;

 private:
  struct Joined {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShortSymbols = 48;
  static constexpr char32_t kNumCharacterIds = 0x10000;

  using MergeTable = PairTable<Joined>;
  static Joined find_merge(const MergeTable& table, int32_t left, int32_t right) {
    const Joined* const joined = table.find(left, right);
    return joined == nullptr ? Joined{} : *joined;
  }
  int32_t find_word(std::string_view word) const {
    return word.size() <= words_.max_length() ? words_.find(word) : -1;
  }
  bool is_whole(int32_t token) const;
  int32_t find_character(std::string_view character) const;
  template <typename Sink>
  void for_each_symbol(std::string_view word, const Sink& sink) const;
  size_t merge_short(int32_t* ids, size_t count) const;
  void merge_long(Scratch& scratch, std::vector<int32_t>& out) const;

  BpeConfig config_;
  StringIndex words_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<int32_t> character_ids_;  // [kNumCharacterIds], -1: no token; empty if byte_level
  MergeTable merges_;
  MergeTable symbol_merges_;  // those of two symbols, once more: few, so that they stay in a cache
  SymbolJoins joins_;
  // By token: whether merging its own bytes ends in that one token. 0: not tried yet, 1: yes, 2:
  // no. Every thread finds the same answer, so that races are harmless.
  mutable std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace zipage
