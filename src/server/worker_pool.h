// Threads for work that would hold up the io thread: reading large bodies, rendering and tokenizing
// long prompts, building large answers.
//
// They run at a low priority, so that a client who sends such bodies without end takes time that
// nobody else wants, and neither the engine's threads nor the io thread's. What waits is bounded.
//
//   WorkerPool pool(2, 64);
//   if (!pool.submit([] { parse(); })) refuse_with_503();
//
// Threads: submit() any; construction, stop() and destruction the owner's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zipage::server {

class WorkerPool {
 public:
  WorkerPool(size_t num_threads, size_t most_waiting);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job`, which must not throw, on one of the threads, first come first served. False when as
  // many wait as may, or after stop().
  bool submit(std::function<void()> job);
  // Drops what waits, and returns when what runs has ended.
  void stop();

 private:
  void work();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace zipage::server
