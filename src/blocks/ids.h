// The ids of what requests hold (blocks, compression slots, sequences), and CompressJob: one
// compression as the scheduler decides it and `compress` executes it. Plain data; no bytes, no
// device.
#pragma once

#include <cstdint>
#include <vector>

#include "zipage/options.h"

#include "base/strong_id.h"

namespace zipage {

using BlockId = StrongId<struct BlockIdTag>;
// Compression slot.
using SlotId = StrongId<struct SlotIdTag>;
// One of a request's n sequences.
using SequenceId = uint64_t;

// One compression, as decided by the scheduler: plain data that compress executes.
struct CompressJob {
  SequenceId sequence = 0;
  // Unique; the order of jobs of a sequence.
  uint64_t job_id = 0;
  SlotId slot;
  KvPolicy policy = KvPolicy::kPeak;
  // n: entries stored.
  int32_t length = 0;
  // k
  int32_t keep = 0;
  // Entries kept by the last compression; 0: this is the first.
  int32_t history = 0;
  // Tokens evicted so far: entries >= history have position slot + offset.
  int32_t position_offset = 0;
  // In tokens.
  int32_t prompt_length = 0;
  // N_max of the sequence.
  int32_t max_blocks = 0;
  // The whole table.
  std::vector<BlockId> source;
  // N_max - 1 blocks; may name the source's own.
  std::vector<BlockId> target;
};

}  // namespace zipage
