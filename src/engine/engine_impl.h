// The step loop: plan, launch, collect, commit. See docs/engine-contract.md.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "zipage/engine.h"

#include "base/check.h"
#include "engine/engine_setup.h"
#include "engine/kv_trace_log.h"
#include "engine/sequence.h"

namespace zipage {

class EngineImpl : public Engine {
 public:
  EngineImpl(EngineParts parts, const EngineOptions& options);
  ~EngineImpl() override;

  Result<RequestId> submit(Request request, OutputCallback callback) override;
  void abort(RequestId id) override;
  bool step() override;
  void run_until_idle() override;
  void start() override;
  void stop() override;
  EngineStats stats() const override;
  Status health() const override;
  const EngineInfo& info() const override { return parts_.info; }
  const Tokenizer& tokenizer() const override {
    ZIPAGE_CHECK(parts_.tokenizer != nullptr);
    return *parts_.tokenizer;
  }
  SamplingParams default_sampling_params() const override;
  void reset_prefix_cache() override;
  void set_profiling(bool on) override { parts_.runner->set_profiling(on); }

  // For tests.
  Scheduler& scheduler_for_test() { return *parts_.scheduler; }
  std::vector<SequenceId> sequences_for_test(RequestId id) const;

 private:
  struct InFlightCompression {
    std::vector<CompressJob> jobs;
    std::unique_ptr<Event> begin, event;
    std::chrono::steady_clock::time_point started;
  };

  // A step on its way, and whose tokens it samples. Every step is collected, one that samples
  // nothing too: the host is never more than two steps ahead of the device, and a failure ends the
  // requests before a later step can hand out what was computed from it.
  struct LaunchedStep {
    struct Sampled {
      SequenceId sequence;
      size_t row;  // of the plan
    };
    struct Scored {
      SequenceId sequence;
      int32_t count;  // prompt tokens
    };
    // Of ModelRunner::launch(); -1: no step.
    int ticket = -1;
    std::vector<Sampled> sampled;
    std::vector<Scored> scored;
    bool empty() const { return ticket < 0; }
    void clear() {
      ticket = -1;
      sampled.clear();
      scored.clear();
    }
  };

  // engine_submit.cc
  Status check(const Request& request) const;
  Status check_sampling(const SamplingParams& params) const;
  int32_t max_new_tokens(const Request& request) const;
  std::unique_ptr<RequestState> make_state(Request request, OutputCallback callback) const;
  // Whether it could ever run, now that it is prepared.
  Status check_state(const RequestState& state) const;
  // Of the index-th sequence of the request.
  SequenceSpec spec_of(const RequestState& state, SequenceId id, int32_t index) const;

  // Parts of a step, on the thread that runs steps.
  bool run_step();
  bool step_without_rows(const StepPlan& plan);
  void take_inbox();
  void admit(std::unique_ptr<RequestState> state);
  void start_sequences(const StepPlan& plan);
  void start_sequence(EngineSequence& sequence);
  void count_prompt_tokens(const PlannedRow& row, EngineSequence& sequence);
  void give_seats(const StepPlan& plan);
  void expect_samples(const StepPlan& plan, LaunchedStep& launched);
  void deliver(const LaunchedStep& step);
  void deliver_pending();
  // engine_compression.cc
  void launch_compressions(std::vector<CompressJob> jobs);
  void finish_compressions(bool wait);
  void end_compression(const CompressJob& job, const Status& status);
  void drain(Stream& stream);

  void end_sequence(SequenceId id);
  void fail_sequence(SequenceId id, const Status& status);
  void fail_all(const Status& status);
  void fail_step(const Status& status);
  void require_device(const Status& failure);
  void break_down(const Status& status);
  void publish_stats();
  void log_stats();

  EngineParts parts_;
  const EngineOptions options_;
  std::unique_ptr<Stream> compression_stream_;  // null: compressions run on the runner's stream

  // Step thread only.
  SequenceTable sequences_;
  std::unique_ptr<KvTraceLog> kv_trace_;  // null: not asked for
  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::vector<SequenceId> seats_;  // owner of each seat; 0: free
  std::vector<RowResult> results_;
  bool pipelined_ = false;  // a step is launched before the last one's samples are read
  // Sequences that have started and whose sampler must see every token before the next.
  int64_t num_host_bound_ = 0;
  LaunchedStep pending_;  // with pipelined_: the step whose samples are not read yet
  LaunchedStep spare_;    // memory of an earlier step
  std::vector<InFlightCompression> in_flight_;
  std::chrono::steady_clock::time_point last_compression_end_;
  RequestOutput output_;
  EngineStats totals_;
  SequenceId next_sequence_ = 1;
  // Of requests that bring none.
  uint64_t seed_ = 0;
  std::chrono::steady_clock::time_point last_log_;
  int64_t logged_prompt_tokens_ = 0, logged_generation_tokens_ = 0;

  // Shared.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<RequestState>> inbox_;
  std::vector<RequestId> aborts_;
  bool reset_prefix_ = false;
  RequestId next_request_ = 1;
  int64_t unfinished_sequences_ = 0;
  Status broken_;  // why there are no more steps; written on the step thread
  EngineStats stats_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
};

}  // namespace zipage
