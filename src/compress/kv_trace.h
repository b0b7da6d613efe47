// Writes and reads what each compression kept. Format: docs/kv-trace.md.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "zipage/kv_trace.h"

namespace zipage {

// Takes the records of a Compressor.
class KvTraceSink {
 public:
  virtual ~KvTraceSink() = default;
  // Whether records are still wanted; asked before they are made.
  virtual bool is_open() const { return true; }
  // May change the record: the compressor knows the sequence, but not its request.
  virtual void take(KvTraceRecord& record) = 0;
};

// Throws Error naming the file when it cannot be written. What was written before stays a whole
// trace, as far as the file system lets it.
class KvTraceWriter final : public KvTraceSink {
 public:
  explicit KvTraceWriter(const std::string& path);
  void write(const KvTraceRecord& record);
  void take(KvTraceRecord& record) override { write(record); }

 private:
  void put(const std::string& bytes);

  const std::string path_;
  std::ofstream file_;
  uintmax_t whole_bytes_ = 0;  // in the file up to the end of its last record
  std::string bytes_;
};

// Throws Error (kNotFound, kDataLoss) naming the file and the byte where it is not as documented.
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
