// One step of scoring (method.md 3.3). A policy is a list of stages (pipeline.h); a new one is a
// file in stages/ and a line there.
#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "compress/compression_model.h"

namespace zipage {

inline constexpr int kNumScoreRows = 3;

// What a stage reads and leaves for the next: the scores of a batch of jobs for the layers of one
// stride.
struct ScoreContext {
  Backend* backend = nullptr;
  Stream* stream = nullptr;
  const CompressionModel* model = nullptr;
  CompressionOpArgs ops;
  // Scratch, each [num_jobs, num_layers, num_kv_heads, capacity] f32.
  std::array<float*, kNumScoreRows> rows{};
  float* workspace = nullptr;
  // The jobs as peak updates, for those without F: see make_prompt_peak_stage().
  const PeakUpdateBatch* peaks = nullptr;

  float* attention = nullptr;   // S so far, in one of the rows
  float* redundancy = nullptr;  // R
  const float* history =
      nullptr;  // the new F, which moves with the kept entries; null: the cache's own F moves
  float* score = nullptr;  // what top-k reads
};

// Immutable after construction: one object serves every batch.
class ScoreStage {
 public:
  virtual ~ScoreStage() = default;
  virtual const char* name() const = 0;
  virtual void run(ScoreContext& context) const = 0;
  // Index of the highest scratch row that it writes, or -1.
  virtual int highest_row() const { return -1; }
};

}  // namespace zipage
