// A small pool for data-parallel loops of a few microseconds and up. Workers spin briefly, then
// sleep.
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

// Owned and driven by one thread at a time; run() is not reentrant.
class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(thread) once on each of the num_threads() threads, 0 being the caller, and returns
  // when all are done. The first exception is rethrown.
  void run(FunctionRef<void(int thread)> body);

  // Calls body(begin, end) over pieces of [0, count) of at most `grain`, taken as threads are free.
  // Results must not depend on which thread takes a piece.
  void parallel_for(int64_t count,
                    int64_t grain,
                    FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  void work(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stopping_{false};
  const FunctionRef<void(int)>* body_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace zipage
