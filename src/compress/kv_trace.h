// What each compression kept, on record: a file that a table or a page can be drawn from.
//
// Format: the 8 bytes "ZPKVTR1\n", then records. A record is its payload's size (u32, little
// endian) and the payload. Numbers in a payload are LEB128 varints: sequence, job_id, policy (as in
// KvPolicy), layer, num_heads, length, keep, history, prompt_length, tokens; then for each KV head
// `keep` positions, ascending, as differences (the first from -1, so that all are
// >= 1), and `keep` scores as bfloat16, little endian (+inf: protected). About 3 bytes an entry.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "zipage/options.h"

namespace zipage {

// One compression of one layer.
struct KvTraceRecord {
  uint64_t sequence = 0;
  uint64_t job_id = 0;
  KvPolicy policy = KvPolicy::kPeak;
  int32_t layer = 0;
  int32_t num_heads = 0;
  int32_t length = 0;              // entries before
  int32_t keep = 0;                // entries after
  int32_t history = 0;             // entries that an earlier compression had kept; 0: the first
  int32_t prompt_length = 0;       // tokens
  int32_t tokens = 0;              // tokens of the sequence so far, evicted ones too
  std::vector<int32_t> positions;  // [num_heads, keep] of the survivors
  std::vector<float> scores;       // [num_heads, keep]
};

// Throws Error naming the file when it cannot be written.
class KvTraceWriter {
 public:
  explicit KvTraceWriter(const std::string& path);
  void write(const KvTraceRecord& record);
  void flush();

 private:
  const std::string path_;
  std::ofstream file_;
  std::string payload_;
};

// Throws Error (kNotFound, kDataLoss) naming the file and the byte where it is not as above.
class KvTraceReader {
 public:
  explicit KvTraceReader(const std::string& path);
  // False at the end of the file. Scores come back as bfloat16 left them.
  bool next(KvTraceRecord& record);

 private:
  [[noreturn]] void bad(const char* what) const;
  uint64_t varint(uint64_t most);

  const std::string path_;
  std::ifstream file_;
  int64_t offset_ = 0;  // of the current record
  std::string payload_;
  size_t at_ = 0;  // in payload_
};

}  // namespace zipage
