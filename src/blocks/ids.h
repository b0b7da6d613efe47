// Ids of what requests hold. Block accounting knows no bytes and no device.
#pragma once

#include <cstdint>
#include <vector>

#include "zipage/options.h"

#include "base/strong_id.h"

namespace zipage {

using BlockId = StrongId<struct BlockIdTag>;
using SlotId = StrongId<struct SlotIdTag>;  // compression slot
using SequenceId = uint64_t;                // one of a request's n sequences

// One compression, as decided by the scheduler: plain data that compress executes.
struct CompressJob {
  SequenceId sequence = 0;
  uint64_t job_id = 0;  // unique; the order of jobs of a sequence
  SlotId slot;
  KvPolicy policy = KvPolicy::kPeak;
  int32_t length = 0;   // n: entries stored
  int32_t keep = 0;     // k
  int32_t history = 0;  // entries kept by the last compression; 0: this is the first
  int32_t position_offset =
      0;  // tokens evicted so far: entries >= history have position slot + offset
  int32_t prompt_length = 0;    // tokens
  int32_t max_blocks = 0;       // N_max of the sequence
  std::vector<BlockId> source;  // the whole table
  std::vector<BlockId> target;  // N_max - 1 blocks; may name the source's own
};

}  // namespace zipage
