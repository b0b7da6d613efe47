// Turns a StepPlan into the arrays that the ops read: one packed upload a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "backend/backend.h"
#include "engine/sequence.h"
#include "schedule/step_plan.h"

namespace zipage {

using SequenceTable = std::unordered_map<SequenceId, std::unique_ptr<EngineSequence>>;

struct BatchLimits {
  int32_t max_tokens = 0;  // a step
  int32_t max_rows = 0;
  int32_t max_logits = 0;          // tokens with logits a step
  int32_t max_blocks_per_row = 0;  // longest block table
  int32_t max_bias = 0;            // biased token ids over all rows
  int32_t block_size = 0;
  int32_t window_size = 0;
};

// A step's arrays, in host memory and on the device. The device addresses never change, so that a
// captured graph finds the next step's numbers in the same place. The host side is double: a step
// is built while the upload of the last one may still be under way. Each side has an event, recorded
// after its upload and waited for before the side is written again: a host that runs ahead of a late
// device never changes what a queued copy has yet to read.
class BatchBuilder {
 public:
  BatchBuilder(Backend& backend, const BatchLimits& limits);

  // Fills the other host side, once its last upload is done. Which tokens' logits are wanted: the last of every row that samples.
  void build(const StepPlan& plan, const SequenceTable& sequences);
  // Adds padding rows with logits until there are `num_rows`: after build() of a step whose rows
  // are all decodes, or after reset().
  void pad_to(int32_t num_rows);
  void reset();
  // The sampler's rows, to be filled between build() and upload(): one for each logits token.
  std::span<SampleRow> sample_rows() {
    return {host(sample_rows_), static_cast<size_t>(batch_.num_logits)};
  }
  std::span<int32_t> bias_ids() { return {host(bias_ids_), static_cast<size_t>(limits_.max_bias)}; }
  std::span<float> bias_values() {
    return {host(bias_values_), static_cast<size_t>(limits_.max_bias)};
  }
  // `num_bias` entries of the bias arrays are in use.
  void upload(int32_t num_bias, Stream& stream);

  const StepBatch& batch() const { return batch_; }
  const SampleRow* device_sample_rows() const { return device(sample_rows_); }
  const int32_t* device_bias_ids() const { return device(bias_ids_); }
  const float* device_bias_values() const { return device(bias_values_); }
  static size_t upload_bytes(const BatchLimits& limits);

 private:
  struct HostSide {
    Buffer buffer;
    std::unique_ptr<Event> uploaded;
    // A copy that reads the buffer may be queued.
    bool in_use = false;
  };
  template <typename T>
  struct Array {
    size_t offset = 0;  // bytes from the start of either side
  };
  template <typename T>
  void place(Array<T>& array, int64_t count);
  template <typename T>
  T* host(Array<T> array) const {
    return reinterpret_cast<T*>(sides_[current_].buffer.data() + array.offset);
  }
  template <typename T>
  T* device(Array<T> array) const {
    return reinterpret_cast<T*>(device_.data() + array.offset);
  }
  void add_row(const PlannedRow& row, const StepPlan& plan, const EngineSequence& sequence);

  Backend& backend_;
  const BatchLimits limits_;
  std::array<HostSide, 2> sides_;
  Buffer device_;
  size_t current_ = 0;
  size_t placed_bytes_ = 0;
  Array<int32_t> token_ids_, positions_, kv_slots_, query_slots_, row_of_token_, row_begin_,
      kv_lens_, logits_tokens_, block_tables_, bias_ids_;
  Array<float> bias_values_;
  Array<SampleRow> sample_rows_;
  StepBatch batch_;
};

}  // namespace zipage
