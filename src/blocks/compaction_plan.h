// Chooses the N_max - 1 blocks into which a compression writes (method.md 4): the sequence's own
// where they may be overwritten, new ones where other sequences share them.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "blocks/block_pool.h"
#include "blocks/ids.h"

namespace zipage {

// Target i is the table's own block i, written in place, unless that block must stay as it is: then
// it is a new one. Entries only move towards the front, so that block i is never written before it
// and those behind it were read. A block must stay when another sequence uses it; a cached block of
// this sequence alone stays while there is room.
struct CompactionPlan {
  // Blocks to allocate.
  int32_t num_new = 0;
  // Cached blocks of this sequence alone are left intact.
  bool keeps_cached = false;
};

// `num_spare`: free blocks nobody else is about to need; new blocks beyond the necessary ones come
// from them only.
CompactionPlan plan_compaction(const BlockPool& pool,
                               std::span<const BlockId> table,
                               int32_t num_targets,
                               int32_t num_spare);

// Whether the plan replaces this block of the table.
bool is_replaced(const BlockPool& pool, const CompactionPlan& plan, BlockId block);

}  // namespace zipage
