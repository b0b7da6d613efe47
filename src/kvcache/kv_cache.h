// KvCache: the memory of K, V, query cache, F and positions, and the host memory of swapped
// sequences (method.md 1, 2). Knows bytes only; which block belongs to whom is decided in
// src/blocks and src/schedule.
//
// Thread: the engine's. Everything is allocated by the constructor.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/kv_view.h"
#include "blocks/ids.h"
#include "kvcache/memory_plan.h"

namespace zipage {

// One sequence's move between device and host. A SwapOp of the step plan in plain terms.
struct SwapMove {
  SequenceId sequence = 0;
  // With its queries, F and positions; invalid: none.
  SlotId slot;
  // The sequence's block table.
  std::span<const BlockId> device_blocks;
  // As many, < num_host_blocks.
  std::span<const int32_t> host_blocks;
};

// Owned and driven by the engine's thread. Everything is allocated by the constructor.
class KvCache {
 public:
  KvCache(Backend& backend, const KvCacheConfig& config, const MemoryPlan& plan);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Valid while this lives.
  const PagedKvView& view() const { return view_; }
  const MemoryPlan& plan() const { return plan_; }
  size_t device_bytes() const { return device_bytes_; }

  // Enqueues the copies on `stream`: one stream for all swaps, as host bytes are used again in its
  // order. The slot's state is kept under the sequence's id until swap_in() or drop_swapped(); at
  // most num_host_slots sequences with a slot may be out.
  void swap_out(const SwapMove& move, Stream& stream);
  // The slot may differ from the one swapped out. Without a valid slot the kept state is dropped.
  void swap_in(const SwapMove& move, Stream& stream);
  // A sequence that ended while it was out; others are ignored.
  void drop_swapped(SequenceId sequence);
  int32_t num_free_host_slots() const { return static_cast<int32_t>(free_host_slots_.size()); }

 private:
  enum class Direction { kOut, kIn };
  void copy_blocks(const SwapMove& move, Direction direction, Stream& stream);
  void copy_slot(SlotId slot, int32_t host_slot, Direction direction, Stream& stream);
  Backend& backend_;
  const KvCacheConfig config_;
  const MemoryPlan plan_;
  // [num_layers, num_blocks, num_kv_heads, block_size, head_dim]
  Buffer k_, v_;
  // [num_layers, num_slots, window_size, num_q_heads, head_dim]
  Buffer queries_;
  // [num_layers, num_slots, num_kv_heads, score_capacity] f32.
  Buffer scores_;
  // The same, i32.
  Buffer positions_;
  std::vector<LayerKvView> layers_;
  PagedKvView view_;
  size_t device_bytes_ = 0;

  // [num_host_blocks, block_bytes]
  Buffer host_blocks_;
  // [num_host_slots, slot_bytes]
  Buffer host_slots_;
  std::vector<int32_t> free_host_slots_;
  std::unordered_map<SequenceId, int32_t> swapped_slots_;
};

}  // namespace zipage
