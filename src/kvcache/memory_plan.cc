#include "kvcache/memory_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/integer.h"

namespace zipage {
namespace {

constexpr size_t kMaxIds = std::numeric_limits<int32_t>::max();

std::string mib(size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

size_t elements(std::initializer_list<int64_t> extents) {
  size_t count = 1;
  for (const int64_t extent : extents) count *= static_cast<size_t>(extent);
  return count;
}

size_t element_bytes(DType dtype) { return static_cast<size_t>(dtype_bytes(dtype, 1)); }

// Blocks that a request of the largest kind can hold while it decodes.
size_t blocks_per_request(const KvCacheConfig& config) {
  const auto n_max = static_cast<size_t>(config.max_blocks_per_seq);
  if (config.max_model_len <= 0) return n_max;
  const auto whole = static_cast<size_t>(ceil_div(config.max_model_len, config.block_size));
  return std::min(n_max, whole);
}

void plan_swap(const KvCacheConfig& config, MemoryPlan& plan) {
  if (config.swap_space_bytes == 0) return;
  // Every sequence that is out holds a block at least, so more slots than blocks are of no use; nor
  // are more than the sequences there may be.
  const size_t block = plan.block_bytes;
  const size_t slot = plan.num_slots > 0 ? plan.slot_bytes : 0;
  size_t slots = std::min(config.swap_space_bytes / (block + slot), kMaxIds);
  if (plan.num_slots == 0) slots = 0;
  if (config.max_num_seqs > 0) slots = std::min(slots, static_cast<size_t>(config.max_num_seqs));
  const size_t blocks = std::min((config.swap_space_bytes - slots * slot) / block, kMaxIds);
  plan.num_host_blocks = static_cast<int32_t>(blocks);
  plan.num_host_slots = static_cast<int32_t>(slots);
  plan.host_bytes = blocks * block + slots * slot;
}

}  // namespace

SlotContents& SlotContents::operator|=(const SlotContents& other) {
  queries |= other.queries;
  scores |= other.scores;
  positions |= other.positions;
  return *this;
}

bool SlotContents::has(const SlotContents& needed) const {
  return (queries || !needed.queries) && (scores || !needed.scores) &&
         (positions || !needed.positions);
}

SlotContents slot_contents(const CompressionOptions& options) {
  const KvPolicyTraits& policy = traits_of(options.kv_policy);
  SlotContents contents;
  contents.queries = policy.needs_queries;
  contents.scores = policy.needs_f;
  contents.positions = policy.reads_positions || (policy.has_redundancy && options.derotate) ||
                       options.sink_tokens > 0 || options.protect_prompt;
  return contents;
}

size_t kv_block_bytes(const KvCacheConfig& c) {
  return elements({2, c.num_layers, c.num_kv_heads, c.block_size, c.head_dim}) *
         element_bytes(c.dtype);
}

size_t kv_slot_bytes(const KvCacheConfig& c) {
  if (c.max_blocks_per_seq == 0) return 0;
  size_t bytes = 0;
  if (c.contents.queries) {
    bytes += elements({c.num_layers, c.window_size, c.num_q_heads, c.head_dim}) *
             element_bytes(c.query_dtype);
  }
  const size_t entries =
      elements({c.num_layers, c.num_kv_heads, c.max_blocks_per_seq, c.block_size});
  if (c.contents.scores) bytes += entries * sizeof(float);
  if (c.contents.positions) bytes += entries * sizeof(int32_t);
  return bytes;
}

MemoryPlan plan_memory(const KvCacheConfig& config, size_t memory_bytes, size_t reserved_bytes) {
  ZIPAGE_CHECK(config.num_layers > 0 && config.num_kv_heads > 0 && config.num_q_heads > 0);
  ZIPAGE_CHECK(config.head_dim > 0 && config.block_size > 0 && config.window_size > 0);
  ZIPAGE_CHECK_GE(config.max_blocks_per_seq, 0);
  MemoryPlan plan;
  plan.block_bytes = kv_block_bytes(config);
  plan.slot_bytes = kv_slot_bytes(config);
  plan.reserved_bytes = reserved_bytes;
  const bool capped = config.max_blocks_per_seq > 0;
  const size_t per_request = capped ? blocks_per_request(config) : 1;
  const size_t seqs = config.max_num_seqs > 0 ? static_cast<size_t>(config.max_num_seqs) : kMaxIds;

  size_t blocks = 0;
  size_t slots = 0;
  if (config.num_blocks_override > 0) {
    blocks = static_cast<size_t>(config.num_blocks_override);
    if (blocks > kMaxIds || blocks < per_request) {
      fail_invalid("--num-gpu-blocks-override {}: one request needs {} blocks, and {} is the most",
                   blocks, per_request, kMaxIds);
    }
    if (capped) slots = std::min(blocks / per_request, seqs);
  } else {
    const size_t request_bytes = plan.block_bytes * per_request + plan.slot_bytes;
    const size_t available = memory_bytes > reserved_bytes ? memory_bytes - reserved_bytes : 0;
    if (available < request_bytes) {
      fail(StatusCode::kResourceExhausted,
           "the KV cache needs at least {} bytes and is given {}: {} for one request ({} blocks of "
           "{} and a slot of {}) and "
           "{} for compression and workspaces; raise --kv-cache-memory, or lower --kv-budget, "
           "--block-size or --layer-stride",
           request_bytes + reserved_bytes, memory_bytes, request_bytes, per_request,
           plan.block_bytes, plan.slot_bytes, reserved_bytes);
    }
    if (capped) slots = std::min(available / request_bytes, seqs);  // Eq. 1
    blocks = std::min((available - slots * plan.slot_bytes) / plan.block_bytes,
                      kMaxIds / static_cast<size_t>(config.block_size));
  }
  plan.num_blocks = static_cast<int32_t>(blocks);
  plan.num_slots = static_cast<int32_t>(slots);
  plan.max_blocks_per_seq = config.max_blocks_per_seq;
  if (capped) plan.score_capacity = config.max_blocks_per_seq * config.block_size;
  plan.total_bytes = blocks * plan.block_bytes + slots * plan.slot_bytes + reserved_bytes;
  plan_swap(config, plan);
  return plan;
}

std::string MemoryPlan::describe(const KvCacheConfig& config, KvPolicy policy) const {
  std::string line = fmt::format("KV cache: {} blocks of {} tokens ({} {}, {} tokens in all)",
                                 num_blocks, config.block_size, to_string(config.dtype),
                                 mib(block_bytes), int64_t{num_blocks} * config.block_size);
  if (max_blocks_per_seq > 0) {
    line += fmt::format(", {} slots of {}, N_max {}, budget {}, policy {}", num_slots,
                        mib(slot_bytes), max_blocks_per_seq,
                        int64_t{max_blocks_per_seq - 1} * config.block_size, to_string(policy));
  } else {
    line += ", full KV";
  }
  line += fmt::format("; {} = blocks {} + slots {} + scratch {}", mib(total_bytes),
                      mib(static_cast<size_t>(num_blocks) * block_bytes),
                      mib(static_cast<size_t>(num_slots) * slot_bytes), mib(reserved_bytes));
  if (num_host_blocks > 0)
    line += fmt::format("; swap {} = {} blocks", mib(host_bytes), num_host_blocks);
  return line;
}

}  // namespace zipage
