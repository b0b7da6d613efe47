// What the compressions of a run kept: reads the files that EngineOptions::kv_trace names. The
// format stands in docs/kv-trace.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zipage/options.h"
#include "zipage/status.h"

namespace zipage {

// One compression of one layer.
struct KvTraceRecord {
  uint64_t request_id = 0;  // as submit() returned it
  int32_t index = 0;        // of the sequence in its request, < sampling.n
  std::string external_id;  // Request::external_id
  uint64_t sequence = 0;    // unique in an engine
  uint64_t job_id = 0;      // of the compression: unique in an engine, ascending in a sequence
  KvPolicy policy = KvPolicy::kPeak;
  int32_t layer = 0;
  int32_t num_heads = 0;           // KV heads
  int32_t length = 0;              // entries before
  int32_t keep = 0;                // entries after
  int32_t history = 0;             // entries that an earlier compression had kept; 0: the first
  int32_t prompt_length = 0;       // tokens
  int32_t tokens = 0;              // tokens of the sequence so far, evicted ones too
  std::vector<int32_t> positions;  // [num_heads, keep] of the survivors, ascending in each head
  std::vector<float> scores;       // [num_heads, keep], rounded to bfloat16; +inf: protected
};

class KvTraceFile {
 public:
  // kNotFound when the file cannot be opened, kDataLoss when it is no trace.
  static Result<std::unique_ptr<KvTraceFile>> open(const std::string& path);
  virtual ~KvTraceFile() = default;
  // Reads the next record; false at the end of the file. kDataLoss names the byte of the record
  // that is not as documented: the last one, when the program that wrote it was killed.
  virtual Result<bool> next(KvTraceRecord& record) = 0;
};

}  // namespace zipage
