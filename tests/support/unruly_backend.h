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
#include "support/forwarding_backend.h"

namespace zipage::testing {

// Jobs are counted in the order in which they are enqueued, from 0 on. Thread: the engine's.
class UnrulyBackend final : public ForwardingBackend {
 public:
  struct Behaviour {
    bool late = false;                       // the engine reads samples a step late, as on a GPU
    bool manual = false;                     // compressions run when run_compressions() says so
    std::function<bool(int64_t)> holds;      // job: not to be seen as done yet
    std::function<bool(int64_t)> fails;      // job: its work throws
    std::function<void()> before_attention;  // may throw: the step fails
    // May write to the logits, which are there by then: ops run at once on the main stream.
    std::function<void(const SampleArgs&)> before_sample;
    Status device_health;  // what the engine hears after a failure
  };

  explicit UnrulyBackend(int num_threads = 1) : ForwardingBackend(make_cpu(num_threads)) {}

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

  DeviceTraits traits() const override {
    DeviceTraits traits = ForwardingBackend::traits();
    traits.is_asynchronous |= behaviour.late;
    return traits;
  }
  Status device_health() override { return behaviour.device_health; }
  Buffer allocate(size_t bytes, MemorySpace space) override {
    ++num_allocations_;
    return inner().allocate(bytes, space);
  }
  std::unique_ptr<Stream> create_stream(bool low_priority) override {
    if (!low_priority) return inner().create_stream(false);
    ++num_streams_;
    if (!behaviour.manual) return inner().create_stream(true);
    auto stream = static_cast<cpu::CpuBackend&>(inner()).create_manual_stream();
    manual_ = stream.get();
    return stream;
  }
  std::unique_ptr<Event> create_event() override {
    return std::make_unique<HeldEvent>(*this, inner().create_event());
  }
  void paged_attention(const PagedAttentionArgs& a, Stream& s) override {
    if (behaviour.before_attention) behaviour.before_attention();
    inner().paged_attention(a, s);
  }
  void sample(const SampleArgs& a, Stream& s) override {
    if (behaviour.before_sample) behaviour.before_sample(a);
    inner().sample(a, s);
  }
  void compact(const CompactArgs& a, Stream& s) override {
    const int64_t job = a.layer_begin == 0 ? num_started_++ : num_started_ - 1;
    compacted_ = &s;
    if (behaviour.fails && behaviour.fails(job)) {
      dynamic_cast<cpu::CpuStream&>(s).push(cpu::Task(
          [](cpu::CpuContext&) { fail(StatusCode::kInternal, "this compression must fail"); }));
    }
    inner().compact(a, s);
  }

 private:
  static std::unique_ptr<Backend> make_cpu(int num_threads) {
    BackendOptions options;
    options.num_threads = num_threads;
    return std::make_unique<cpu::CpuBackend>(options);
  }

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

  cpu::QueuedStream* manual_ = nullptr;
  const Stream* compacted_ = nullptr;  // the stream of the last compaction, until an event
  int64_t num_started_ = 0, num_enqueued_ = 0, num_streams_ = 0, num_allocations_ = 0;
};

}  // namespace zipage::testing
