// How much memory a Compressor works in: all of it is known before the first job.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/compressor.h"

namespace zipage {

struct ScratchPlan {
  int32_t layers = 0;         // of a stride
  int32_t long_capacity = 0;  // entries of the longest job: ceil(max_model_len / b) * b
  int32_t long_layers = 0;    // layers at a time of a job longer than the score cache
  int32_t max_keep = 0;       // (N_max - 1) * b
  int num_rows = 0;           // kNumScoreRows
  size_t row_floats = 0;      // of one of them
  size_t kept_slots = 0;
  size_t workspace_bytes = 0;
  size_t peak_workspace_bytes = 0;  // of update_peaks(), which may run beside run()
  size_t table_bytes = 0;           // of one plan()

  size_t rows_bytes() const { return static_cast<size_t>(num_rows) * row_floats * sizeof(float); }
  size_t kept_bytes() const { return kept_slots * sizeof(int32_t); }
};

ScratchPlan make_scratch_plan(const Backend& backend,
                              const CompressionModel& model,
                              const CompressionOptions& options,
                              const CompressorLimits& limits);

}  // namespace zipage
