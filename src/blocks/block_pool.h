// BlockPool: reference counts of KV blocks, and the order in which free blocks are taken. Ids only:
// the bytes belong to kvcache/kv_cache.h.
//
//   BlockPool::Taken taken = pool.allocate();
//   if (taken.was_cached) prefixes.prune(taken.block);
//   pool.release(taken.block);
//
// Thread: the scheduler's.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks/ids.h"

namespace zipage {

// A free block may still hold a prompt that the prefix index knows (`cached`). Free blocks are one
// list: those without reusable contents at its front, cached ones behind them, the one freed last
// at the end, so that allocate() takes cached ones last and the least recently used first. All
// O(1), nothing is allocated after construction. Thread: the owner's.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  int32_t num_free() const { return num_free_; }
  int32_t num_cached_free() const { return num_cached_free_; }
  int32_t ref_count(BlockId block) const { return node(block).ref_count; }
  bool cached(BlockId block) const { return node(block).cached; }

  struct Taken {
    // Reference count 1, not cached.
    BlockId block;
    // The prefix index must forget it.
    bool was_cached = false;
  };
  // One must be free.
  Taken allocate();
  // One more user, of a used or of a free cached block.
  void acquire(BlockId block);
  // One user less. Free a table from its end, so that a prompt's later blocks are reused before its
  // first.
  void release(BlockId block);
  void set_cached(BlockId block, bool cached);

  // Throws CheckFailure when the list and the counts disagree.
  void check_invariants() const;

 private:
  struct Node {
    // In the free list.
    int32_t previous = -1, next = -1;
    int32_t ref_count = 0;
    bool cached = false;
  };
  const Node& node(BlockId block) const { return nodes_[index(block)]; }
  Node& node(BlockId block) { return nodes_[index(block)]; }
  size_t index(BlockId block) const;
  // Into the free list, at the end its contents ask for.
  void link(int32_t block);
  // Out of it.
  void unlink(int32_t block);

  // The last one is the list's head.
  std::vector<Node> nodes_;
  int32_t num_free_ = 0;
  int32_t num_cached_free_ = 0;
};

}  // namespace zipage
