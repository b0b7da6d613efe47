// What the engine does in one step, as decided by the scheduler. Plain data; tables and ids only.
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
  int32_t position = 0;  // logical position of the first token: tokens [position, position +
                         // num_tokens) are computed
  int32_t kv_begin = 0;  // physical index of the first token
  SlotId slot;           // compression slot for its queries; invalid: queries are not kept
  bool samples = false;  // the last token's logits yield the next token
  // Peak attention: F is updated once the step is computed, at length L = position + num_tokens;
  // the value is L', the length at the last update (0: none, F = p). Both count true tokens,
  // evicted ones too. -1: no update.
  int32_t peak_previous_length = -1;
  int32_t table = 0;  // index of the first block in StepPlan::blocks
  int32_t num_blocks = 0;
};

// Host copies of a sequence's KV: moved before the rows run.
struct SwapOp {
  SequenceId sequence = 0;
  bool out = false;     // device -> host, or back
  SlotId slot;          // with its queries, F and positions; invalid: none
  int32_t history = 0;  // entries that have F and positions
  int32_t kv_len = 0;
  std::vector<BlockId> device_blocks;
  std::vector<int32_t> host_blocks;  // ids in the swap space
};

struct StepPlan {
  std::vector<SwapOp> swaps;
  std::vector<PlannedRow> rows;  // decodes first
  std::vector<BlockId> blocks;   // the rows' tables, one after the other
  int32_t num_tokens = 0;
  bool empty() const { return rows.empty() && swaps.empty(); }
};

}  // namespace zipage
