// Reads a KV trace: which entries each compression of a run kept, and their scores.
// EngineOptions::kv_trace writes such files; docs/kv-trace.md has the format. Implemented in
// src/compress/kv_trace_file.cc.
//
//   auto file = KvTraceFile::open("run.kvtrace");
//   for (KvTraceRecord record; file.value()->next(record).value();) { ... }
//
// Threads: one at a time per file.
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
  // As Engine::submit() returned it.
  uint64_t request_id = 0;
  // Which of the request's sampling.n sequences, from 0.
  int32_t index = 0;
  // Request::external_id.
  std::string external_id;
  // Unique in an engine.
  uint64_t sequence = 0;
  // The compression's id: unique in an engine, ascending in a sequence.
  uint64_t job_id = 0;
  KvPolicy policy = KvPolicy::kPeak;
  int32_t layer = 0;
  // KV heads.
  int32_t num_heads = 0;
  // Entries per head before and after the compression.
  int32_t length = 0;
  int32_t keep = 0;
  // Entries per head that an earlier compression had kept; 0 at a sequence's first compression.
  int32_t history = 0;
  // Prompt tokens, and all tokens of the sequence so far (evicted ones too).
  int32_t prompt_length = 0;
  int32_t tokens = 0;
  // [num_heads, keep]: positions of the survivors, ascending in each head.
  std::vector<int32_t> positions;
  // [num_heads, keep]: their scores, rounded to bfloat16. +inf marks a protected entry.
  std::vector<float> scores;
};

class KvTraceFile {
 public:
  // Fails with kNotFound if the file cannot be opened, with kDataLoss if it is not a KV trace.
  static Result<std::unique_ptr<KvTraceFile>> open(const std::string& path);
  virtual ~KvTraceFile() = default;
  // Reads the next record; false at the end of the file. Fails with kDataLoss, naming the byte at
  // which a malformed record begins. The last record of a program that was killed is often cut
  // short.
  virtual Result<bool> next(KvTraceRecord& record) = 0;
};

}  // namespace zipage
