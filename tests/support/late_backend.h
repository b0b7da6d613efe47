// A device that is late: a CPU's backend whose streams are queues, as a GPU's are. What is enqueued
// runs only when the host waits for it, or, with `progress`, in random pieces while the host goes
// on; the host is then ahead of the device by as much as its own waiting allows. Graphs are captured
// and launched as on a GPU. Wrong waiting is found in two ways: answers differ from the plain
// backend's, and violations() lists host memory that was written while a queued copy had yet to
// read it, or freed before.
//
//   auto backend = std::make_unique<LateBackend>(/*num_threads=*/1);
//   backend->behaviour.progress = 0.3;
//   EngineImpl engine(build_engine_parts(options, std::move(backend)), options);
//
// Thread: one, the engine's. Streams and events must not outlive the backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/check.h"
#include "base/error.h"
#include "support/forwarding_backend.h"

namespace zipage::testing {

class LateBackend final : public ForwardingBackend {
 public:
  struct Behaviour {
    // Chance that a call to the backend lets some queued work run; 0: work runs only when the host
    // waits for it.
    double progress = 0;
    bool graphs = true;
    // Called when attention is enqueued; may throw, as a launch that cannot be made.
    std::function<void()> before_attention;
    // Called when attention runs; an exception is a fault of the device, which is lost with it:
    // nothing runs any more, and every wait throws.
    std::function<void()> during_attention;
  };

  explicit LateBackend(int num_threads, uint32_t seed = 1)
      : ForwardingBackend(make_cpu(num_threads)), random_(seed) {}

  Behaviour behaviour;
  // Uses of host memory that a device would have got wrong; empty: none.
  const std::vector<std::string>& violations() const { return *violations_; }
  // Writes them to `list` from now on, which outlives the backend.
  void keep_violations(std::vector<std::string>* list) { violations_ = list; }
  // The most tasks that were queued at a time, over all streams.
  size_t most_queued() const { return most_queued_; }
  int64_t num_graph_launches() const { return num_graph_launches_; }

  DeviceInfo info() const override {
    DeviceInfo info = inner().info();
    info.kind = "late";
    return info;
  }
  DeviceTraits traits() const override {
    return {.is_asynchronous = true,
            .supports_graphs = behaviour.graphs,
            .has_own_memory = true,
            .default_step_tokens = 4096,
            .compression_batch_jobs = 8};
  }
  Status device_health() override {
    return lost_ == nullptr ? Status() : Status(StatusCode::kUnavailable, "the device is lost");
  }

  Buffer allocate(size_t bytes, MemorySpace space) override {
    if (bytes == 0) return Buffer();
    auto buffer = std::make_shared<Buffer>(inner().allocate(bytes, space));
    std::byte* const data = buffer->data();
    if (space == MemorySpace::kDevice) device_memory_[data] = bytes;
    return Buffer(data, bytes, [this, buffer, bytes](void* p) {
      auto* const begin = static_cast<std::byte*>(p);
      for (const Copy& copy : copies_) {
        if (lost_ != nullptr) break;
        if (overlap(copy.from, copy.bytes, begin, bytes) ||
            overlap(copy.to, copy.bytes, begin, bytes))
          violations_->push_back("memory was freed while a copy of it was queued");
      }
      device_memory_.erase(begin);
      *buffer = Buffer();
    });
  }
  void copy(void* to, const void* from, size_t bytes, Stream& s) override;
  void fill_zero(void* to, size_t bytes, Stream& s) override {
    enter();
    inner().fill_zero(to, bytes, s);
  }
  std::unique_ptr<Stream> create_stream(bool) override {
    return std::make_unique<LateStream>(*this, inner().create_stream(false));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<LateEvent>(*this); }
  void synchronize(Stream& stream) override { as_late(stream).synchronize(); }
  void begin_capture(Stream& stream) override {
    ZIPAGE_CHECK(as_late(stream).capture == nullptr);
    as_late(stream).capture = std::make_unique<Tasks>();
  }
  std::unique_ptr<Graph> end_capture(Stream& stream) override {
    return std::make_unique<LateGraph>(*this, std::move(as_late(stream).capture));
  }
  void paged_attention(const PagedAttentionArgs& args, Stream& s) override {
    enter();
    if (behaviour.before_attention) behaviour.before_attention();
    as_late(s).push(cpu::Task([this](cpu::CpuContext&) {
      if (behaviour.during_attention) behaviour.during_attention();
    }));
    inner().paged_attention(args, s);
  }

 protected:
  void before_op(const char*) override { enter(); }

 private:
  static std::unique_ptr<Backend> make_cpu(int num_threads) {
    BackendOptions options;
    options.num_threads = num_threads;
    return std::make_unique<cpu::CpuBackend>(options);
  }

  using Tasks = std::vector<std::shared_ptr<cpu::Task>>;

  // Its tasks, in order. num_run and num_pushed count them; events compare with these.
  struct Queue {
    std::deque<std::shared_ptr<cpu::Task>> tasks;
    uint64_t num_pushed = 0, num_run = 0;
  };

  class LateStream final : public cpu::CpuStream {
   public:
    LateStream(LateBackend& owner, std::unique_ptr<Stream> main)
        : owner_(owner), main_(std::move(main)) {
      context_ = dynamic_cast<cpu::CpuStream&>(*main_).immediate();
      ZIPAGE_CHECK(context_ != nullptr);
      owner_.streams_.push_back(this);
    }
    // What nobody waited for is dropped: memory that it works on may be gone.
    ~LateStream() override {
      queue->num_run = queue->num_pushed;
      std::erase(owner_.streams_, this);
    }
    cpu::CpuContext* immediate() override { return nullptr; }
    void push(cpu::Task task) override {
      push_shared(std::make_shared<cpu::Task>(std::move(task)));
    }
    void push_shared(std::shared_ptr<cpu::Task> task) {
      if (capture != nullptr) {
        capture->push_back(std::move(task));
        return;
      }
      queue->tasks.push_back(std::move(task));
      ++queue->num_pushed;
      owner_.count_queued();
    }
    void synchronize() override { owner_.run_until(*queue, queue->num_pushed, context_); }
    bool run_next() {
      if (queue->tasks.empty()) return false;
      owner_.run_until(*queue, queue->num_run + 1, context_);
      return true;
    }
    cpu::CpuContext* context() { return context_; }

    const std::shared_ptr<Queue> queue = std::make_shared<Queue>();
    std::unique_ptr<Tasks> capture;  // not null: a graph is being captured

   private:
    LateBackend& owner_;
    const std::unique_ptr<Stream> main_;
    cpu::CpuContext* context_ = nullptr;
  };

  class LateEvent final : public Event {
   public:
    explicit LateEvent(LateBackend& owner) : owner_(owner) {}
    void record(Stream& stream) override {
      owner_.enter();
      LateStream& late = as_late(stream);
      mark_ = {late.queue, late.queue->num_pushed, late.context()};
    }
    bool query() override {
      owner_.enter();
      owner_.throw_if_lost();
      return mark_.queue == nullptr || mark_.queue->num_run >= mark_.count;
    }
    void wait() override { mark_.wait(owner_); }
    void block(Stream& stream) override {
      as_late(stream).push(
          cpu::Task([mark = mark_, &owner = owner_](cpu::CpuContext&) { mark.wait(owner); }));
    }

   private:
    struct Mark {
      std::shared_ptr<Queue> queue;
      uint64_t count = 0;
      cpu::CpuContext* context = nullptr;
      void wait(LateBackend& owner) const {
        if (queue != nullptr) owner.run_until(*queue, count, context);
      }
    };
    LateBackend& owner_;
    Mark mark_;
  };

  class LateGraph final : public Graph {
   public:
    LateGraph(LateBackend& owner, std::unique_ptr<Tasks> tasks)
        : owner_(owner), tasks_(std::move(tasks)) {}
    void launch(Stream& stream) override {
      owner_.enter();
      ++owner_.num_graph_launches_;
      for (const auto& task : *tasks_) as_late(stream).push_shared(task);
    }

   private:
    LateBackend& owner_;
    const std::unique_ptr<Tasks> tasks_;
  };

  struct Copy {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };

  static LateStream& as_late(Stream& stream) { return dynamic_cast<LateStream&>(stream); }
  static bool overlap(const std::byte* a, size_t na, const std::byte* b, size_t nb) {
    return a < b + nb && b < a + na;
  }
  static uint64_t hash(const std::byte* data, size_t bytes) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<uint64_t>(data[i])) * 1099511628211u;
    return h;
  }
  bool on_device(const std::byte* p) const {
    auto next = device_memory_.upper_bound(p);
    if (next == device_memory_.begin()) return false;
    --next;
    return p < next->first + next->second;
  }
  void throw_if_lost() const {
    if (lost_ != nullptr) std::rethrow_exception(lost_);
  }
  void count_queued() {
    size_t queued = 0;
    for (const LateStream* stream : streams_) queued += stream->queue->tasks.size();
    most_queued_ = std::max(most_queued_, queued);
  }
  // Runs the first `target` tasks of the queue.
  void run_until(Queue& queue, uint64_t target, cpu::CpuContext* context) {
    throw_if_lost();
    while (queue.num_run < target) {
      ZIPAGE_CHECK(!queue.tasks.empty());
      const std::shared_ptr<cpu::Task> task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      try {
        (*task)(*context);
      } catch (...) {
        lost_ = std::current_exception();
        throw;
      }
      ++queue.num_run;
    }
  }
  // At each call: a part of what is queued may run meanwhile.
  void enter() {
    if (lost_ != nullptr || streams_.empty() ||
        !std::bernoulli_distribution(behaviour.progress)(random_))
      return;
    LateStream& stream = *streams_[random_() % streams_.size()];
    try {
      for (uint32_t count = random_() % 40; count > 0 && stream.run_next(); --count) {
      }
    } catch (...) {
      // Whoever waits hears of it.
    }
  }

  std::mt19937 random_;
  std::vector<LateStream*> streams_;
  std::map<const std::byte*, size_t> device_memory_;
  std::list<Copy> copies_;  // queued
  std::vector<std::string> own_violations_;
  std::vector<std::string>* violations_ = &own_violations_;
  std::exception_ptr lost_;
  size_t most_queued_ = 0;
  int64_t num_graph_launches_ = 0;
};

inline void LateBackend::copy(void* to, const void* from, size_t bytes, Stream& s) {
  enter();
  if (bytes == 0) return;
  const Copy copy{static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes};
  ZIPAGE_CHECK(as_late(s).capture == nullptr);
  const auto is_queued = [&](auto&& touches) {
    return std::any_of(copies_.begin(), copies_.end(), touches);
  };
  // An upload reads what the host has written by now, unless a queued copy writes it.
  const bool checked = !on_device(copy.from) && !is_queued([&](const Copy& other) {
    return overlap(other.to, other.bytes, copy.from, bytes);
  });
  // Until a download is done the host finds rubbish.
  if (!on_device(copy.to) && !is_queued([&](const Copy& other) {
        return overlap(other.from, other.bytes, copy.to, bytes);
      }))
    std::memset(copy.to, 0xA5, bytes);
  const uint64_t expected = checked ? hash(copy.from, bytes) : 0;
  const auto place = copies_.insert(copies_.end(), copy);
  as_late(s).push(cpu::Task([this, place, checked, expected](cpu::CpuContext&) {
    if (checked && hash(place->from, place->bytes) != expected) {
      violations_->push_back(fmt::format(
          "{} bytes of host memory were written while their copy was queued", place->bytes));
    }
    std::memcpy(place->to, place->from, place->bytes);
    copies_.erase(place);
  }));
}

}  // namespace zipage::testing
