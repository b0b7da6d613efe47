#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace zipage {
namespace {

// About 50 us: longer than the gap between two ops of a step, shorter than what a user would
// notice.
constexpr int kSpins = 4000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  ZIPAGE_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (workers_.empty()) {
    body(0);
    return;
  }
  body_ = &body;
  error_ = nullptr;
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);  // seq_cst: pairs with the sleeper's check below
  if (sleeping_.load() > 0) {
    { std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  try {
    body(0);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  for (int spins = 0; pending_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::parallel_for(int64_t count,
                              int64_t grain,
                              FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || workers_.empty()) {
    body(0, count);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(begin + grain, count));
    }
  });
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        pause_cpu();
        continue;
      }
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      sleeping_.fetch_sub(1);
    }
    ++seen;  // run() waits for every worker, so none misses a generation before the last
    if (stopping_.load()) return;
    try {
      (*body_)(thread);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace zipage
