// The tables of a plan as one packed run of bytes: 64-bit seeds, then 32-bit arrays of one
// element a job, then the block tables. The same layout on the host and on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/ops/compression.h"
#include "blocks/ids.h"
#include "compress/compressor.h"

namespace zipage {

class JobTables {
 public:
  // stride: blocks a row of the tables holds.
  JobTables(int32_t num_jobs, int32_t stride) : num_jobs_(num_jobs), stride_(stride) {}
  static size_t bytes(int64_t num_jobs, int64_t stride);
  size_t bytes() const { return bytes(num_jobs_, stride_); }

  // Writes row `index` at `host`.
  void set(std::byte* host, int32_t index, const CompressJob& job, uint64_t seed) const;
  void set(std::byte* host, int32_t index, const PeakUpdate& update) const;

  // Jobs [begin, begin + count) of the tables at `device`; max_length and max_keep are the
  // caller's.
  CompressionBatch batch(const std::byte* device, int32_t begin, int32_t count) const;
  PeakUpdateBatch peaks(const std::byte* device, int32_t begin, int32_t count) const;

 private:
  enum Column { kSlot, kLength, kKeep, kHistory, kOffset, kPrompt, kPrevious, kNumColumns };
  size_t column_at(int column) const;
  size_t sources_at() const { return column_at(kNumColumns); }
  size_t targets_at() const;

  int32_t num_jobs_;
  int32_t stride_;
};

}  // namespace zipage
