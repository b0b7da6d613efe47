// Divides the KV memory into blocks and compression slots (method.md 2, Eq. 1 and 2). Arithmetic
// only: nothing is allocated here.
//
//   MemoryPlan plan = plan_memory(config, memory_bytes, scratch_bytes);
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "zipage/options.h"

#include "tensor/dtype.h"

namespace zipage {

// What a compression slot holds beside the request's id.
struct SlotContents {
  // The ring of the last w query vectors.
  bool queries = false;
  // F of each entry.
  bool scores = false;
  // Of each entry; without them entries count as if none before them had been evicted.
  bool positions = false;

  SlotContents& operator|=(const SlotContents& other);
  // Whether a slot with these contents serves a policy that needs `needed`.
  bool has(const SlotContents& needed) const;
};
// What the policy of `options` needs, by its traits and by the options that read positions.
// `options`: for_policy() or resolved().
SlotContents slot_contents(const CompressionOptions& options);

struct KvCacheConfig {
  // Of K and V.
  DType dtype = DType::kF32;
  // Of the query cache.
  DType query_dtype = DType::kF32;
  int32_t num_layers = 0;
  // Of this device's share of the model.
  int32_t num_q_heads = 0;
  // Of this device's share of the model.
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  // b
  int32_t block_size = 0;
  // w
  int32_t window_size = 0;
  // Tokens; 0: unknown.
  int64_t max_model_len = 0;
  // No plan has more slots than this; 0: no limit.
  int32_t max_num_seqs = 0;
  // N_max of the largest capped budget a request may have; 0: full KV only, no slots.
  int32_t max_blocks_per_seq = 0;
  // Ignored without slots.
  SlotContents contents;
  // N_total; 0: from the memory.
  int64_t num_blocks_override = 0;
  // Host memory for swapped sequences.
  size_t swap_space_bytes = 0;
};

struct MemoryPlan {
  // N_total
  int32_t num_blocks = 0;
  // M
  int32_t num_slots = 0;
  // N_max, 0: full KV only.
  int32_t max_blocks_per_seq = 0;
  // N_max * b entries of F and positions a slot and KV head; 0 without slots.
  int32_t score_capacity = 0;
  // m_kv: K and V of a block, all layers.
  size_t block_bytes = 0;
  // m_q: queries, F and positions of a slot, all layers.
  size_t slot_bytes = 0;
  // Scratch and workspaces outside the cache, as given.
  size_t reserved_bytes = 0;
  // Blocks, slots and reserved.
  size_t total_bytes = 0;
  // Swap space.
  int32_t num_host_blocks = 0;
  // Sequences with a slot that may be swapped out at one time.
  int32_t num_host_slots = 0;
  size_t host_bytes = 0;

  // One line for the log. `policy` is the engine's.
  std::string describe(const KvCacheConfig& config, KvPolicy policy) const;
};

// m_kv and m_q.
size_t kv_block_bytes(const KvCacheConfig& config);
size_t kv_slot_bytes(const KvCacheConfig& config);

// memory_bytes: all that the KV cache and compression may take; reserved_bytes: compression scratch
// and workspaces, which come off first. M = floor(available / (m_kv * N_max + m_q)), at most
// max_num_seqs; N_total = floor((available - M * m_q) / m_kv). A model shorter than N_max blocks
// never holds N_max of them: the smaller count is used for M then. With num_blocks_override
// memory_bytes is not consulted: N_total is given, M = N_total / N_max. Throws kResourceExhausted
// with the needed and the given bytes when not one request fits.
MemoryPlan plan_memory(const KvCacheConfig& config, size_t memory_bytes, size_t reserved_bytes);

}  // namespace zipage
