// Finds the block that holds a given piece of a prompt (method.md 4). A block is known by a chained
// hash: of its token ids and of everything before them, down to the extra keys of the request
// (salt, later a LoRA id).
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
    uint64_t serial = 0;  // 0: none
    bool valid() const { return serial != 0; }
    bool operator==(const Handle&) const = default;
  };
  // What an entry is reached by.
  struct Key {
    uint64_t hash = 0;
    std::span<const int32_t> tokens;    // [block_size]
    std::span<const std::string> keys;  // compared for a first block only
    Handle parent;                      // the entry before it; none: this is the first
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
    uint64_t serial = 0;            // never used twice; 0: no entry
    Handle parent;                  // none: first block
    std::vector<std::string> keys;  // first block only
  };
  const Entry& entry(BlockId block) const { return entries_[static_cast<size_t>(block.value())]; }
  Entry& entry(BlockId block) { return entries_[static_cast<size_t>(block.value())]; }
  bool exists(const Handle& h) const { return h.valid() && entry(h.block).serial == h.serial; }
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash) & mask_; }
  // The place of the hash in the table, or of the gap where it would be put.
  size_t place(uint64_t hash) const;
  bool equal(BlockId block, const Key& key) const;

  int32_t block_size_;
  std::vector<Entry> entries_;   // by block
  std::vector<int32_t> tokens_;  // [num_blocks, block_size]
  std::vector<int32_t> table_;   // open addressing with linear probing: block, or -1
  size_t mask_ = 0;
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
};

}  // namespace zipage
