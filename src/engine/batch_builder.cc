#include "engine/batch_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace zipage {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

size_t BatchBuilder::upload_bytes(const BatchLimits& l) {
  const auto ints = [](int64_t count) {
    return aligned(sizeof(int32_t) * static_cast<size_t>(count));
  };
  return 5 * ints(l.max_tokens) + ints(l.max_rows + 1) + ints(l.max_rows) + ints(l.max_logits) +
         2 * ints(l.max_bias) + aligned(sizeof(SampleRow) * static_cast<size_t>(l.max_logits)) +
         ints(int64_t{l.max_rows} * l.max_blocks_per_row);
}

BatchBuilder::BatchBuilder(Backend& backend, const BatchLimits& limits)
    : backend_(backend),
      limits_(limits),
      device_(backend.allocate(upload_bytes(limits), MemorySpace::kDevice)) {
  // The arrays of every step first and the tables, whose size follows the rows, after them: one
  // copy takes both. The biases are rare and go on their own.
  place(token_ids_, limits.max_tokens);
  place(positions_, limits.max_tokens);
  place(kv_slots_, limits.max_tokens);
  place(query_slots_, limits.max_tokens);
  place(row_of_token_, limits.max_tokens);
  place(row_begin_, limits.max_rows + 1);
  place(kv_lens_, limits.max_rows);
  place(logits_tokens_, limits.max_logits);
  place(sample_rows_, limits.max_logits);
  place(block_tables_, int64_t{limits.max_rows} * limits.max_blocks_per_row);
  place(bias_ids_, limits.max_bias);
  place(bias_values_, limits.max_bias);
  ZIPAGE_CHECK_EQ(placed_bytes_, device_.bytes());
  for (HostSide& side : sides_) {
    side.buffer = backend.allocate(upload_bytes(limits), MemorySpace::kHost);
    side.uploaded = backend.create_event();
    std::memset(side.buffer.data(), 0, bias_ids_.offset);
  }
  batch_ = {.token_ids = device(token_ids_),
            .positions = device(positions_),
            .kv_slots = device(kv_slots_),
            .query_slots = device(query_slots_),
            .row_of_token = device(row_of_token_),
            .row_begin = device(row_begin_),
            .kv_lens = device(kv_lens_),
            .block_tables = device(block_tables_),
            .block_table_stride = limits.max_blocks_per_row,
            .logits_tokens = device(logits_tokens_)};
}

template <typename T>
void BatchBuilder::place(Array<T>& array, int64_t count) {
  array.offset = placed_bytes_;
  placed_bytes_ += aligned(sizeof(T) * static_cast<size_t>(count));
}

void BatchBuilder::build(const StepPlan& plan, const SequenceTable& sequences) {
  ZIPAGE_CHECK_LE(plan.num_tokens, limits_.max_tokens);
  ZIPAGE_CHECK_LE(static_cast<int32_t>(plan.rows.size()), limits_.max_rows);
  reset();
  for (const PlannedRow& row : plan.rows) add_row(row, plan, *sequences.at(row.sequence));
  ZIPAGE_CHECK_EQ(batch_.num_tokens, plan.num_tokens);
}

void BatchBuilder::reset() {
  current_ = 1 - current_;
  HostSide& side = sides_[current_];
  if (std::exchange(side.in_use, false)) side.uploaded->wait();
  batch_.num_tokens = batch_.num_rows = batch_.num_logits = 0;
  batch_.max_row_tokens = batch_.max_kv_len = 0;
  host(row_begin_)[0] = 0;
}

void BatchBuilder::pad_to(int32_t num_rows) {
  ZIPAGE_CHECK_LE(num_rows, std::min(limits_.max_rows, limits_.max_logits));
  ZIPAGE_CHECK_EQ(batch_.num_tokens, batch_.num_rows);
  ZIPAGE_CHECK_EQ(batch_.num_logits, batch_.num_rows);
  for (int32_t r = batch_.num_rows; r < num_rows; ++r) {
    host(token_ids_)[r] = host(positions_)[r] = host(kv_lens_)[r] = 0;
    host(kv_slots_)[r] = host(query_slots_)[r] = -1;
    host(row_of_token_)[r] = host(logits_tokens_)[r] = r;
    host(row_begin_)[r + 1] = r + 1;
  }
  batch_.num_tokens = batch_.num_rows = batch_.num_logits = num_rows;
  batch_.max_row_tokens = 1;
}

void BatchBuilder::add_row(const PlannedRow& row,
                           const StepPlan& plan,
                           const EngineSequence& sequence) {
  const int32_t r = batch_.num_rows;
  const int32_t block_size = limits_.block_size;
  const int32_t window = limits_.window_size;
  ZIPAGE_CHECK_LE(row.num_blocks, limits_.max_blocks_per_row);
  ZIPAGE_CHECK_LE(row.kv_begin + row.num_tokens, row.num_blocks * block_size);
  ZIPAGE_CHECK_LE(row.position + row.num_tokens, static_cast<int32_t>(sequence.tokens.size()));
  int32_t* table = host(block_tables_) + int64_t{r} * limits_.max_blocks_per_row;
  for (int32_t i = 0; i < row.num_blocks; ++i)
    table[i] = plan.blocks[static_cast<size_t>(row.table + i)].value();
  for (int32_t j = 0; j < row.num_tokens; ++j) {
    const int32_t t = batch_.num_tokens + j;
    const int32_t entry = row.kv_begin + j;
    host(token_ids_)[t] = sequence.tokens[static_cast<size_t>(row.position + j)];
    host(positions_)[t] = row.position + j;
    host(kv_slots_)[t] = table[entry / block_size] * block_size + entry % block_size;
    // A chunk keeps its last w queries: earlier ones would be overwritten in the ring.
    const bool keeps_query = row.slot.valid() && j >= row.num_tokens - window;
    host(query_slots_)[t] = keeps_query ? row.slot.value() * window + entry % window : -1;
    host(row_of_token_)[t] = r;
  }
  batch_.num_tokens += row.num_tokens;
  host(row_begin_)[r + 1] = batch_.num_tokens;
  const int32_t kv_len = row.kv_begin + row.num_tokens;
  host(kv_lens_)[r] = kv_len;
  batch_.max_row_tokens = std::max(batch_.max_row_tokens, row.num_tokens);
  batch_.max_kv_len = std::max(batch_.max_kv_len, kv_len);
  if (row.samples) {
    ZIPAGE_CHECK_LT(batch_.num_logits, limits_.max_logits);
    host(logits_tokens_)[batch_.num_logits++] = batch_.num_tokens - 1;
  }
  ++batch_.num_rows;
}

void BatchBuilder::upload(int32_t num_bias, Stream& stream) {
  HostSide& side = sides_[current_];
  const std::byte* from = side.buffer.data();
  const size_t tables =
      sizeof(int32_t) * static_cast<size_t>(int64_t{batch_.num_rows} * limits_.max_blocks_per_row);
  backend_.copy(device_.data(), from, block_tables_.offset + tables, stream);
  if (num_bias > 0) {
    const size_t bytes = sizeof(int32_t) * static_cast<size_t>(num_bias);
    backend_.copy(device_.data() + bias_ids_.offset, from + bias_ids_.offset, bytes, stream);
    backend_.copy(device_.data() + bias_values_.offset, from + bias_values_.offset, bytes, stream);
  }
  side.uploaded->record(stream);
  side.in_use = true;
}

}  // namespace zipage
