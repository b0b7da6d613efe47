// A small pool for data-parallel loops of a few microseconds and up. Workers spin briefly, then
// sleep. A loop ends when its pieces are done: it never waits for a worker that has not woken up
// yet, so that on a shared machine a late core costs nothing.
//
//   ThreadPool pool(4);
//   pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end) { ... });
//
// Threads: owned and driven by one thread at a time; offer() may be called from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace zipage {

// Something to do when a pool has a thread to spare: see ThreadPool::offer().
class SpareWork {
 public:
  virtual ~SpareWork() = default;
  // Does a part of it, on a worker of the pool. True: there is more, and it stays on offer.
  virtual bool run_part() noexcept = 0;

 private:
  friend class ThreadPool;
  SpareWork* next_ = nullptr;
};

// No call is reentrant.
class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(thread) once on each of the num_threads() threads, 0 being the caller, and returns
  // when all are done. The first exception is rethrown, here and below.
  void run(FunctionRef<void(int thread)> body);

  // Calls body(index, thread) once for every index of [0, count), on whichever thread is free.
  // Results must not depend on which thread takes an index; `thread` finds that thread's scratch.
  void for_each(int64_t count, FunctionRef<void(int64_t index, int thread)> body);

  // Calls body(begin, end) over pieces of [0, count) of at most `grain`, as for_each() does.
  void parallel_for(int64_t count,
                    int64_t grain,
                    FunctionRef<void(int64_t begin, int64_t end)> body);

  // Has workers call work.run_part(), one at a time, between two loops, until it returns false: the
  // work is no longer on offer then. for_each() and parallel_for() do meanwhile without that
  // worker, so that no thread beyond the pool's asks for a core. Any thread may offer; `work` must
  // not be on offer already. Needs num_threads() > 1. The pool's end drops what is on offer.
  void offer(SpareWork& work);

 private:
  enum class Until { kAllLeft, kEnteredLeft };

  // Lets workers call body(thread), calls body(0), and waits for all workers or for those that
  // came.
  void open(FunctionRef<void(int thread)> body, Until until);
  void call(int thread);
  void work(int thread);
  // Needs mutex_.
  void append_spare(SpareWork& work);
  // Whether there was any.
  bool run_spare();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // Generation, open or not, workers that left, that entered.
  std::atomic<uint64_t> gate_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stopping_{false};
  // On offer and not claimed; the list below holds these at least.
  std::atomic<int> num_spare_{0};
  // Guarded by mutex_.
  SpareWork* first_spare_ = nullptr;
  SpareWork* last_spare_ = nullptr;
  const FunctionRef<void(int)>* body_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace zipage
