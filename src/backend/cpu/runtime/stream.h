// Streams and events of the CPU backend. The main stream runs an op where it is called; a queued
// stream keeps copies of the calls and runs them in order, on a worker of the pool between two of
// its loops (a pool of one thread has none: on one of the stream's own) or, in tests, when the test
// says so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runtime/context.h"
#include "base/thread_pool.h"

namespace zipage::cpu {

// A call to run later, held in place: no memory is taken for one.
class Task {
 public:
  static constexpr size_t kCapacity = 512;

  Task() = default;
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task>) explicit Task(F&& body) {
    using Body = std::remove_cvref_t<F>;
    static_assert(sizeof(Body) <= kCapacity && alignof(Body) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Body>);
    ::new (static_cast<void*>(storage_)) Body(std::forward<F>(body));
    manage_ = [](Action action, void* self, void* other, CpuContext* context) {
      Body& held = *static_cast<Body*>(self);
      if (action == Action::kRun) held(*context);
      if (action == Action::kMove) ::new (other) Body(std::move(held));
      if (action != Action::kRun) held.~Body();
    };
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  void operator()(CpuContext& context) { manage_(Action::kRun, storage_, nullptr, &context); }

 private:
  enum class Action { kRun, kMove, kDestroy };  // kMove also destroys the source

  void reset() {
    if (manage_ != nullptr)
      std::exchange(manage_, nullptr)(Action::kDestroy, storage_, nullptr, nullptr);
  }
  void take(Task& other) {
    manage_ = std::exchange(other.manage_, nullptr);
    if (manage_ != nullptr) manage_(Action::kMove, other.storage_, storage_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[kCapacity];
  void (*manage_)(Action, void* self, void* other, CpuContext* context) = nullptr;
};

// A failure of queued work, reported at least once: by the event recorded after it, or by
// synchronize().
struct Failure {
  std::exception_ptr error;
  std::atomic<bool> reported = false;
};

class CpuStream : public Stream {
 public:
  // Context to run an op in at once, or null: push() it.
  virtual CpuContext* immediate() = 0;
  virtual void push(Task task) = 0;
  // Blocks until all work pushed so far has run; rethrows a failure that no one has seen yet.
  virtual void synchronize() = 0;
};

class MainStream final : public CpuStream {
 public:
  explicit MainStream(const CpuContext& context) : context_(context) {
    context_.scratch = &scratch_;
  }
  CpuContext* immediate() override { return &context_; }
  void push(Task task) override { task(context_); }
  void synchronize() override {}

 private:
  Scratch scratch_;
  CpuContext context_;
};

// Who decides when queued work runs.
enum class Drive {
  kPool,    // the pool's workers, as spare work; whoever waits for it helps
  kManual,  // the owner calls run_next(), or waits for it
};

// Its tasks run one after the other, each on one thread. Beside a pool of several threads, one more
// would ask for a core more than the pool has been given: on a busy machine, a thread of the pool
// would be held up in the middle of an op that all wait for. Must not outlive its backend.
class QueuedStream final : public CpuStream, private SpareWork {
 public:
  QueuedStream(const CpuContext& context, Drive drive);
  ~QueuedStream() override;  // runs what is queued (kPool) or drops it (kManual)

  CpuContext* immediate() override { return nullptr; }
  void push(Task task) override;
  void synchronize() override;

  size_t num_queued();
  // Runs the oldest task on the calling thread; false when there is none, or one is running.
  bool run_next();

 private:
  friend class CpuEvent;
  struct Entry {
    Task task;
    bool always = false;  // of an event: also runs after a failure
  };

  // Returns how many were pushed until now: run_until() of that has run it.
  uint64_t push_entry(Entry entry);
  bool pop(Entry& entry);                             // needs mutex_
  void offer_if_needed();                             // needs mutex_
  bool run_next(std::unique_lock<std::mutex>& lock);  // of mutex_, given up while the task runs
  void run(Entry& entry) noexcept;
  bool run_part() noexcept override;
  // Returns once the first `target` tasks have run; runs them where nobody does, and none beyond:
  // one of those might wait for what the caller is at.
  void run_until(uint64_t target);

  const Drive drive_;
  std::unique_ptr<ThreadPool> own_;  // one worker, where the backend's pool has none
  ThreadPool* const workers_;
  ThreadPool pool_{1};  // for the loops of its ops
  Scratch scratch_;
  CpuContext context_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a task has run, or an offer has ended
  std::vector<Entry> ring_;          // [capacity], grows when full
  size_t head_ = 0;
  size_t size_ = 0;
  uint64_t num_pushed_ = 0;
  uint64_t num_run_ = 0;
  bool running_ = false;  // a task
  bool offered_ = false;  // to the workers
  // Work after a failure is skipped up to the next record of an event, which takes the failure:
  // what follows is another job's.
  std::shared_ptr<Failure> failure_;       // since the last event
  std::shared_ptr<Failure> last_failure_;  // for synchronize()
};

// The stream it was recorded in last must outlive the waits for it.
class CpuEvent final : public Event {
 public:
  void record(Stream& stream) override;
  bool query() override;
  void wait() override;  // rethrows like query()
  void block(Stream& stream) override;

 private:
  // What has to run before the event is reached; no stream: nothing.
  struct Place {
    QueuedStream* stream = nullptr;
    uint64_t count = 0;  // the stream's tasks up to the mark
    void wait() const;
  };
  struct State {
    std::mutex mutex;
    uint64_t recorded = 0;  // calls of record()
    uint64_t reached = 0;   // the newest of them that has been reached
    std::shared_ptr<Failure> failure;
    Place place;  // of the last record
  };
  Place place();
  void rethrow();

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace zipage::cpu
