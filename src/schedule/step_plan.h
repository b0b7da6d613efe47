// StepPlan: what the engine does in one step, as the scheduler decided it. Plain data: ids and
// block tables only.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks/ids.h"

namespace zipage {

// One sequence's run of tokens. Logical positions are true token positions; physical indices count
// KV entries. They part ways at the first compression.
struct PlannedRow {
  SequenceId sequence = 0;
  int32_t num_tokens = 0;
  // Logical position of the first token: tokens [position, position + num_tokens) are computed.
  int32_t position = 0;
  // Physical index of the first token.
  int32_t kv_begin = 0;
  // Compression slot for its queries; invalid: queries are not kept.
  SlotId slot;
  // The last token's logits yield the next token.
  bool samples = false;
  // Peak attention: F is updated once the step is computed, at length L = position + num_tokens;
  // the value is L', the length at the last update (0: none, F = p). Both count true tokens,
  // evicted ones too. -1: no update.
  int32_t peak_previous_length = -1;
  // Index of the first block in StepPlan::blocks.
  int32_t table = 0;
  int32_t num_blocks = 0;
};

// Host copies of a sequence's KV: moved before the rows run.
struct SwapOp {
  SequenceId sequence = 0;
  // Device -> host, or back.
  bool out = false;
  // With its queries, F and positions; invalid: none.
  SlotId slot;
  // Entries that have F and positions.
  int32_t history = 0;
  int32_t kv_len = 0;
  std::vector<BlockId> device_blocks;
  // Ids in the swap space.
  std::vector<int32_t> host_blocks;
};

struct StepPlan {
  std::vector<SwapOp> swaps;
  // Decodes first.
  std::vector<PlannedRow> rows;
  // The rows' tables, one after the other.
  std::vector<BlockId> blocks;
  int32_t num_tokens = 0;
  bool empty() const { return rows.empty() && swaps.empty(); }
};

}  // namespace zipage
