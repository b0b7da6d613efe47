#include "compress/job_tables.h"

#include "base/check.h"

namespace zipage {
namespace {

template <typename T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}
template <typename T>
const T* at(const std::byte* base, size_t offset) {
  return reinterpret_cast<const T*>(base + offset);
}

void set_blocks(int32_t* row, int32_t stride, std::span<const BlockId> blocks) {
  ZIPAGE_CHECK_LE(blocks.size(), static_cast<size_t>(stride));
  for (const BlockId block : blocks) *row++ = block.value();
}

}  // namespace

size_t JobTables::bytes(int64_t num_jobs, int64_t stride) {
  return static_cast<size_t>(num_jobs) * (sizeof(uint64_t) + kNumColumns * sizeof(int32_t) +
                                          2 * static_cast<size_t>(stride) * sizeof(int32_t));
}

size_t JobTables::column_at(int column) const {
  const auto jobs = static_cast<size_t>(num_jobs_);
  return jobs * sizeof(uint64_t) + static_cast<size_t>(column) * jobs * sizeof(int32_t);
}

size_t JobTables::targets_at() const {
  return sources_at() +
         static_cast<size_t>(num_jobs_) * static_cast<size_t>(stride_) * sizeof(int32_t);
}

void JobTables::set(std::byte* host, int32_t index, const CompressJob& job, uint64_t seed) const {
  at<uint64_t>(host, 0)[index] = seed;
  const auto set = [&](Column column, int32_t value) {
    at<int32_t>(host, column_at(column))[index] = value;
  };
  set(kSlot, job.slot.value());
  set(kLength, job.length);
  set(kKeep, job.keep);
  set(kHistory, job.history);
  set(kOffset, job.position_offset);
  set(kPrompt, job.prompt_length);
  set(kPrevious, 0);
  const int64_t row = int64_t{index} * stride_;
  set_blocks(at<int32_t>(host, sources_at()) + row, stride_, job.source);
  set_blocks(at<int32_t>(host, targets_at()) + row, stride_, job.target);
}

void JobTables::set(std::byte* host, int32_t index, const PeakUpdate& update) const {
  at<int32_t>(host, column_at(kSlot))[index] = update.slot.value();
  at<int32_t>(host, column_at(kLength))[index] = update.length;
  at<int32_t>(host, column_at(kPrevious))[index] = update.previous_length;
  set_blocks(at<int32_t>(host, sources_at()) + int64_t{index} * stride_, stride_, update.blocks);
}

CompressionBatch JobTables::batch(const std::byte* device, int32_t begin, int32_t count) const {
  const auto column = [&](Column c) { return at<int32_t>(device, column_at(c)) + begin; };
  const int64_t row = int64_t{begin} * stride_;
  CompressionBatch batch;
  batch.num_jobs = count;
  batch.slots = column(kSlot);
  batch.lengths = column(kLength);
  batch.keeps = column(kKeep);
  batch.histories = column(kHistory);
  batch.position_offsets = column(kOffset);
  batch.prompt_lengths = column(kPrompt);
  batch.seeds = at<uint64_t>(device, 0) + begin;
  batch.block_tables = at<int32_t>(device, sources_at()) + row;
  batch.target_tables = at<int32_t>(device, targets_at()) + row;
  batch.block_table_stride = stride_;
  return batch;
}

PeakUpdateBatch JobTables::peaks(const std::byte* device, int32_t begin, int32_t count) const {
  const auto column = [&](Column c) { return at<int32_t>(device, column_at(c)) + begin; };
  PeakUpdateBatch batch;
  batch.num_updates = count;
  batch.slots = column(kSlot);
  batch.lengths = column(kLength);
  batch.previous_lengths = column(kPrevious);
  batch.block_tables = at<int32_t>(device, sources_at()) + int64_t{begin} * stride_;
  batch.block_table_stride = stride_;
  return batch;
}

}  // namespace zipage
