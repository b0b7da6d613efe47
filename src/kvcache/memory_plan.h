// How the KV memory is divided into blocks and compression slots (method.md 2, Eq. 1 and 2).
// Arithmetic only: nothing is allocated here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "zipage/options.h"

#include "tensor/dtype.h"

namespace zipage {

// What the policies in use need in a compression slot.
struct SlotContents {
  bool queries = false;    // peak, paper, attention, redundancy, global
  bool scores = false;     // F: peak, paper, global
  bool positions = false;  // every policy of a capped cache
};
// The union over `policies` (the engine's and those that requests may ask for).
SlotContents slot_contents(std::span<const KvPolicy> policies);

struct KvCacheConfig {
  DType dtype = DType::kF32;        // of K and V
  DType query_dtype = DType::kF32;  // of the query cache
  int32_t num_layers = 0;
  int32_t num_q_heads = 0;   // local to this device
  int32_t num_kv_heads = 0;  // local to this device
  int32_t head_dim = 0;
  int32_t block_size = 0;     // b
  int32_t window_size = 0;    // w
  int64_t max_model_len = 0;  // tokens; 0: unknown
  int32_t max_num_seqs = 0;   // no plan has more slots than this; 0: no limit
  // N_max of the largest capped budget a request may have; 0: full KV only, no slots.
  int32_t max_blocks_per_seq = 0;
  SlotContents contents;            // ignored without slots
  int64_t num_blocks_override = 0;  // N_total; 0: from the memory
  size_t swap_space_bytes = 0;      // host memory for swapped sequences
};

struct MemoryPlan {
  int32_t num_blocks = 0;          // N_total
  int32_t num_slots = 0;           // M
  int32_t max_blocks_per_seq = 0;  // N_max, 0: full KV only
  int32_t score_capacity =
      0;  // N_max * b entries of F and positions a slot and KV head; 0 without slots
  size_t block_bytes = 0;       // m_kv: K and V of a block, all layers
  size_t slot_bytes = 0;        // m_q: queries, F and positions of a slot, all layers
  size_t reserved_bytes = 0;    // scratch and workspaces outside the cache, as given
  size_t total_bytes = 0;       // blocks, slots and reserved
  int32_t num_host_blocks = 0;  // swap space
  int32_t num_host_slots = 0;   // sequences with a slot that may be swapped out at one time
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
