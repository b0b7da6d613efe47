// Launches a step on the device and brings its samples back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "compress/compressor.h"
#include "engine/batch_builder.h"
#include "engine/prompt_scorer.h"
#include "engine/sample_layout.h"
#include "kvcache/kv_cache.h"
#include "model/decoder.h"

namespace zipage {

struct RunnerLimits {
  BatchLimits batch;
  int32_t max_logprobs = 20;  // alternatives a token
  size_t sample_workspace_bytes = 0;
  int32_t max_kv_len = 0;  // entries of the longest row
};

// Owns the step's host and device arrays. Thread: the engine's.
class ModelRunner {
 public:
  ModelRunner(Backend& backend,
              Decoder& decoder,
              KvCache& cache,
              Compressor* compressor,
              int32_t vocab,
              const RunnerLimits& limits);

  // Captures the forward pass of decode steps at a few batch sizes, where the device can. Call
  // once, before launch(). `progress` may be empty.
  void capture_graphs(const Decoder::Progress& progress);
  // Fills the sequence's rows of the count and mask tables, where its sampler needs them. Before
  // its first sample.
  void prepare_seat(const EngineSequence& sequence);
  // Enqueues swaps, the forward pass, updates of peak attention and sampling. One more step may be
  // launched before this one is collected: a token id of -1 - i then means sample i of the step
  // before. Returns the ticket for collect(), which must be called, or the stream drained, before
  // the launch() after the next: that one writes to the same host memory.
  int launch(const StepPlan& plan, const SequenceTable& sequences);
  // Waits for that step and returns its samples, in the order of the plan's sampling rows. Valid
  // until the launch() after the next.
  StepSamples collect(int ticket);
  // The same of the prompt tokens that the step scored; after collect().
  StepSamples prompt_scores(int ticket) const { return scorer_.scores(ticket); }

  Stream& stream() { return *stream_; }
  // While on, steps run op by op, one at a time, and the device's time of their parts is added up.
  void set_profiling(bool on);
  double sample_seconds() const { return sample_seconds_ + scorer_.sample_seconds(); }
  static size_t bytes(const RunnerLimits& limits, int32_t vocab);

 private:
  // What came back of one step.
  struct Returned {
    Buffer host;  // as device_samples_
    std::unique_ptr<Event> done;
    int32_t num_samples = 0;
    int32_t max_logprobs = -1;  // of the step's rows; -1: none asks
  };
  struct CapturedDecode {
    int32_t num_rows = 0;
    std::unique_ptr<Graph> graph;
  };
  // The smallest captured batch that holds a step of decodes alone; null: run op by op.
  const CapturedDecode* captured_for(const StepPlan& plan) const;
  int32_t fill_sample_rows(const StepPlan& plan, const SequenceTable& sequences, Returned& step);
  void sample(Returned& step);
  void take_profile(const Returned& step);
  void update_peaks(const StepPlan& plan);

  Backend& backend_;
  Decoder& decoder_;
  KvCache& cache_;
  Compressor* compressor_;  // null: full KV only
  const int32_t vocab_;
  const RunnerLimits limits_;
  std::unique_ptr<Stream> stream_;
  BatchBuilder builder_;
  PromptScorer scorer_;
  std::vector<CapturedDecode> graphs_;  // by rising num_rows
  Buffer device_samples_;               // tokens, logprobs, ranks, top ids, top logprobs
  std::array<Returned, 2> returned_;
  int next_ticket_ = 0;
  Buffer sample_workspace_;
  std::vector<PeakUpdate> peak_updates_;
  Buffer counts_;        // [max_rows, vocab] u32, see SampleArgs
  Buffer masks_;         // [max_rows, ceil(vocab / 32)] u32
  Buffer seat_staging_;  // [vocab] u32
  double sample_seconds_ = 0;
  bool profiling_ = false;
  std::unique_ptr<Event> sample_begin_, sample_end_;
};

}  // namespace zipage
