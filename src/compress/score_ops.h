// The ops of scoring as a policy's function calls them (policies.cc). A ScoreOps knows the jobs,
// the layers, the stream and the options, so that a call names only what the method's page names.
//
//   float* s = op.attention();               // each call leaves its result in a row of scratch
//   return op.combine(s, op.redundancy());   // and returns it
//
// A row has one score for each entry of each head: [num_jobs, num_layers, num_kv_heads, capacity]
// f32 in device memory. Calls only enqueue. Thread: the engine's; one object a stride of layers.
#pragma once

#include <array>

#include "zipage/options.h"

#include "backend/backend.h"
#include "compress/compression_model.h"

namespace zipage {

// As many rows as the policy that needs most of them takes from scratch.
inline constexpr int kNumScoreRows = 3;

struct ScoreScratch {
  std::array<float*, kNumScoreRows> rows{};
  // compression_workspace_bytes() of the backend.
  float* workspace = nullptr;
};

class ScoreOps {
 public:
  // All arguments outlive the object. `options` are resolved for the jobs' policy. `windows`: the
  // jobs as updates of peak attention, for f_of_last_window(). jobs_have_f: see has_f().
  ScoreOps(Backend& backend,
           Stream& stream,
           const CompressionModel& model,
           const CompressionOptions& options,
           const CompressionOpArgs& args,
           const PeakUpdateBatch& windows,
           bool jobs_have_f,
           const ScoreScratch& scratch)
      : backend_(backend),
        stream_(stream),
        model_(model),
        options_(options),
        args_(args),
        windows_(windows),
        jobs_have_f_(jobs_have_f),
        scratch_(scratch) {}

  // Alg. 1 (3.1.1): attention of the last window, max over the group's heads, mean over queries.
  float* attention();
  // Alg. 2 (3.1.2): s meets the F of the last compression, in place. The result is the new F.
  void global(float* s);
  // Eq. 3 (3.1.3): max pool over the sequence, as --pooling says; s itself where it says never.
  float* max_pool(float* s);
  // Alg. 3 (3.1.4): redundancy R of each key among the keys of its block, or of the cache.
  float* redundancy();

  // False for prompts that are longer than the score cache and meet their first compression: no
  // update of F has seen them (3.2).
  bool has_f() const { return jobs_have_f_; }
  // 3.2: F = p of the last window. The result is the new F.
  void f_of_last_window();
  // 3.2: S = F / sum(F).
  float* normalized_f();
  // 3.2: R = softmax(u_i . mean_j(u_j) / tau), u the keys turned back by their positions.
  float* center_redundancy();

  // Scores without queries: the slot index (StreamingLLM), or a draw of the job's seed.
  float* recency();
  float* random();

  // Eq. 4 (3.1.5): lambda*S - (1-lambda)*R, or as --combine says; r null: S. Never in the row of
  // the new F, as protect() overwrites scores.
  float* combine(float* s, float* r);

  // 3.1.6: +inf for the newest entries, the sinks, and the prompt where it is protected.
  void protect(float* score);

  // F that compaction moves with the kept entries; null: the cache's own stays F.
  const float* new_f() const { return new_f_; }

 private:
  float* next_row();

  Backend& backend_;
  Stream& stream_;
  const CompressionModel& model_;
  const CompressionOptions& options_;
  const CompressionOpArgs& args_;
  const PeakUpdateBatch& windows_;
  const bool jobs_have_f_;
  const ScoreScratch& scratch_;
  size_t num_rows_used_ = 0;
  const float* new_f_ = nullptr;
};

}  // namespace zipage
