// A backend whose compressions end when a test says so, or fail: everything else goes to the
// backend that it wraps, which must be a CPU's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage::testing {

// Jobs are counted in the order in which they are enqueued, from 0 on. Thread: the engine's.
class UnrulyBackend final : public Backend {
 public:
  struct Behaviour {
    std::string kind;                        // of the device, as the engine is told; empty: "cpu"
    bool manual = false;                     // compressions run when run_compressions() says so
    std::function<bool(int64_t)> holds;      // job: not to be seen as done yet
    std::function<bool(int64_t)> fails;      // job: its work throws
    std::function<void()> before_attention;  // may throw: the step fails
    // May write to the logits, which are there by then: ops run at once on the main stream.
    std::function<void(const SampleArgs&)> before_sample;
    Status device_health;  // what the engine hears after a failure
  };

  explicit UnrulyBackend(int num_threads = 1) {
    BackendOptions options;
    options.num_threads = num_threads;
    inner_ = std::make_unique<cpu::CpuBackend>(options);
  }

  Behaviour behaviour;
  int64_t num_jobs_started() const { return num_started_; }
  int64_t num_jobs_enqueued() const { return num_enqueued_; }
  int64_t num_compression_streams() const { return num_streams_; }
  int64_t num_allocations() const { return num_allocations_; }
  // Of a manual stream: runs up to `most` of its tasks; how many it ran.
  int run_compressions(int most) {
    int count = 0;
    while (count < most && manual_ != nullptr && manual_->run_next()) ++count;
    return count;
  }

  DeviceInfo info() const override {
    DeviceInfo info = inner_->info();
    if (!behaviour.kind.empty()) info.kind = behaviour.kind;
    return info;
  }
  Status device_health() override { return behaviour.device_health; }
  DType activation_dtype() const override { return inner_->activation_dtype(); }
  Buffer allocate(size_t bytes, MemorySpace space) override {
    ++num_allocations_;
    return inner_->allocate(bytes, space);
  }
  void copy(void* to, const void* from, size_t bytes, Stream& s) override {
    inner_->copy(to, from, bytes, s);
  }
  void fill_zero(void* to, size_t bytes, Stream& s) override { inner_->fill_zero(to, bytes, s); }

  std::unique_ptr<Stream> create_stream(bool low_priority) override {
    if (!low_priority) return inner_->create_stream(false);
    ++num_streams_;
    if (!behaviour.manual) return inner_->create_stream(true);
    auto stream = inner_->create_manual_stream();
    manual_ = stream.get();
    return stream;
  }
  std::unique_ptr<Event> create_event() override {
    return std::make_unique<HeldEvent>(*this, inner_->create_event());
  }
  void synchronize(Stream& stream) override { inner_->synchronize(stream); }
  void begin_capture(Stream& stream) override { inner_->begin_capture(stream); }
  std::unique_ptr<Graph> end_capture(Stream& stream) override {
    return inner_->end_capture(stream);
  }
  std::unique_ptr<LinearWeight> make_linear(std::span<const HostTensor> parts,
                                            std::span<const HostTensor> bias) override {
    return inner_->make_linear(parts, bias);
  }
  size_t attention_workspace_bytes(const Limits& limits) const override {
    return inner_->attention_workspace_bytes(limits);
  }
  size_t sample_workspace_bytes(const Limits& limits) const override {
    return inner_->sample_workspace_bytes(limits);
  }
  size_t compression_workspace_bytes(const Limits& limits,
                                     const CompressionOptions& options) const override {
    return inner_->compression_workspace_bytes(limits, options);
  }

  void embed(const EmbedArgs& a, Stream& s) override { inner_->embed(a, s); }
  void rms_norm(const RmsNormArgs& a, Stream& s) override { inner_->rms_norm(a, s); }
  void linear(const LinearArgs& a, Stream& s) override { inner_->linear(a, s); }
  void silu_mul(const SiluMulArgs& a, Stream& s) override { inner_->silu_mul(a, s); }
  void gather_rows(const GatherRowsArgs& a, Stream& s) override { inner_->gather_rows(a, s); }
  void attention_prepare(const AttentionPrepareArgs& a, Stream& s) override {
    inner_->attention_prepare(a, s);
  }
  void paged_attention(const PagedAttentionArgs& a, Stream& s) override {
    if (behaviour.before_attention) behaviour.before_attention();
    inner_->paged_attention(a, s);
  }
  void sample(const SampleArgs& a, Stream& s) override {
    if (behaviour.before_sample) behaviour.before_sample(a);
    inner_->sample(a, s);
  }
  void attention_score(const AttentionScoreArgs& a, Stream& s) override {
    inner_->attention_score(a, s);
  }
  void global_score(const GlobalScoreArgs& a, Stream& s) override { inner_->global_score(a, s); }
  void max_pool(const MaxPoolArgs& a, Stream& s) override { inner_->max_pool(a, s); }
  void redundancy(const RedundancyArgs& a, Stream& s) override { inner_->redundancy(a, s); }
  void center_redundancy(const CenterRedundancyArgs& a, Stream& s) override {
    inner_->center_redundancy(a, s);
  }
  void normalized_history(const NormalizedHistoryArgs& a, Stream& s) override {
    inner_->normalized_history(a, s);
  }
  void combine(const CombineArgs& a, Stream& s) override { inner_->combine(a, s); }
  void plain_score(const PlainScoreArgs& a, Stream& s) override { inner_->plain_score(a, s); }
  void protect(const ProtectArgs& a, Stream& s) override { inner_->protect(a, s); }
  void top_k(const TopKArgs& a, Stream& s) override { inner_->top_k(a, s); }
  void compact(const CompactArgs& a, Stream& s) override {
    const int64_t job = a.layer_begin == 0 ? num_started_++ : num_started_ - 1;
    compacted_ = &s;
    if (behaviour.fails && behaviour.fails(job)) {
      dynamic_cast<cpu::CpuStream&>(s).push(cpu::Task(
          [](cpu::CpuContext&) { fail(StatusCode::kInternal, "this compression must fail"); }));
    }
    inner_->compact(a, s);
  }
  void peak_update(const PeakUpdateArgs& a, Stream& s) override { inner_->peak_update(a, s); }

 private:
  // The first event after a job's last op tells of its end.
  class HeldEvent final : public Event {
   public:
    HeldEvent(UnrulyBackend& owner, std::unique_ptr<Event> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    void record(Stream& stream) override {
      job_ = owner_.compacted_ == &stream ? owner_.num_enqueued_++ : -1;
      if (job_ >= 0) owner_.compacted_ = nullptr;
      inner_->record(stream);
    }
    bool query() override {
      const auto& holds = owner_.behaviour.holds;
      if (job_ >= 0 && holds && holds(job_)) return false;
      return inner_->query();
    }
    void wait() override {
      inner_->wait();
      if (job_ >= 0) job_ = -2;  // the engine has nothing else to do
    }
    void block(Stream& stream) override { inner_->block(stream); }

   private:
    UnrulyBackend& owner_;
    std::unique_ptr<Event> inner_;
    int64_t job_ = -1;
  };

  std::unique_ptr<cpu::CpuBackend> inner_;
  cpu::QueuedStream* manual_ = nullptr;
  const Stream* compacted_ = nullptr;  // the stream of the last compaction, until an event
  int64_t num_started_ = 0, num_enqueued_ = 0, num_streams_ = 0, num_allocations_ = 0;
};

}  // namespace zipage::testing
