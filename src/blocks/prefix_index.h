// PrefixIndex: finds the block that already holds the KV of a given piece of a prompt (method.md
// 4). A block is known by a chained hash of its token ids, of all tokens before it, and of the
// request's extra keys (the cache salt).
//
//   auto hashes = prefix_hashes(prompt, block_size, keys);
//   PrefixIndex::Handle hit = index.find({hashes[0], first_block_tokens, keys, {}});
//
// Thread: the scheduler's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "blocks/ids.h"

namespace zipage {

// The chained hash of every full block of a prompt: result[i] covers tokens [0, (i+1)*block_size)
// and the keys.
std::vector<uint64_t> prefix_hashes(std::span<const int32_t> tokens,
                                    int32_t block_size,
                                    std::span<const std::string> keys);

// Equal hashes are not trusted: an entry also keeps its token ids, the keys (first block) and the
// identity of the entry before it, and all are compared. An entry whose predecessor was pruned is
// therefore unreachable until it is replaced. Holds at most one entry a block; nothing is allocated
// after construction but the keys. Thread: the owner's.
class PrefixIndex {
 public:
  PrefixIndex(int32_t num_blocks, int32_t block_size);

  // An entry that was found or published. It stays what it is when the block is pruned and
  // published anew.
  struct Handle {
    BlockId block;
    // 0: none.
    uint64_t serial = 0;
    bool valid() const { return serial != 0; }
    bool operator==(const Handle&) const = default;
  };
  // What an entry is reached by.
  struct Key {
    uint64_t hash = 0;
    // [block_size]
    std::span<const int32_t> tokens;
    // Compared for a first block only.
    std::span<const std::string> keys;
    // The entry before it; none: this is the first.
    Handle parent;
  };
  // The entry with these contents, if any.
  Handle find(const Key& key) const;
  // Publishes `block`, whose KV must exist. When an equal entry exists that one is kept and
  // returned. Nothing is published, and the result is invalid, when the parent was pruned or the
  // place is taken by a different, reachable entry of the same hash. `*replaced` is the block of an
  // unreachable entry that had to go (invalid: none).
  Handle publish(BlockId block, const Key& key, BlockId* replaced);
  // Forgets the block; nothing happens when it has no entry.
  void prune(BlockId block);

  bool contains(BlockId block) const { return entry(block).serial != 0; }
  int32_t size() const { return size_; }
  void check_invariants() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    // Never used twice; 0: no entry.
    uint64_t serial = 0;
    // none: first block.
    Handle parent;
    // First block only.
    std::vector<std::string> keys;
  };
  const Entry& entry(BlockId block) const { return entries_[static_cast<size_t>(block.value())]; }
  Entry& entry(BlockId block) { return entries_[static_cast<size_t>(block.value())]; }
  bool exists(const Handle& h) const { return h.valid() && entry(h.block).serial == h.serial; }
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash) & mask_; }
  // The place of the hash in the table, or of the gap where it would be put.
  size_t place(uint64_t hash) const;
  bool equal(BlockId block, const Key& key) const;

  int32_t block_size_;
  // By block.
  std::vector<Entry> entries_;
  // [num_blocks, block_size]
  std::vector<int32_t> tokens_;
  // Open addressing with linear probing: block, or -1.
  std::vector<int32_t> table_;
  size_t mask_ = 0;
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
};

}  // namespace zipage
