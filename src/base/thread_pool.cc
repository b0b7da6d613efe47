#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace zipage {
namespace {

// About 50 us: longer than the gap between two ops of a step, shorter than what a user would
// notice.
constexpr int kSpins = 4000;

// The gate's bits.
constexpr uint64_t kEntered = 1;        // 16 bits
constexpr uint64_t kLeft = 1ull << 16;  // 15 bits
constexpr uint64_t kOpen = 1ull << 31;
constexpr uint64_t kGeneration = 1ull << 32;
constexpr int kMaxWorkers = (1 << 15) - 1;

int num_entered(uint64_t gate) { return static_cast<int>(gate & 0xffff); }
int num_left(uint64_t gate) { return static_cast<int>(gate >> 16 & 0x7fff); }
uint64_t generation(uint64_t gate) { return gate >> 32; }

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
  ZIPAGE_CHECK_LE(num_threads - 1, kMaxWorkers);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    gate_.fetch_add(kGeneration);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(FunctionRef<void(int)> body) { open(body, Until::kAllLeft); }

void ThreadPool::for_each(int64_t count, FunctionRef<void(int64_t, int)> body) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  const auto take = [&](int thread) {
    for (;;) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      body(index, thread);
    }
  };
  open(take, Until::kEnteredLeft);
}

void ThreadPool::parallel_for(int64_t count,
                              int64_t grain,
                              FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty()) {
    body(0, count);
    return;
  }
  for_each((count + grain - 1) / grain,
           [&](int64_t piece, int) { body(piece * grain, std::min((piece + 1) * grain, count)); });
}

void ThreadPool::open(FunctionRef<void(int)> body, Until until) {
  body_ = &body;
  error_ = nullptr;
  const uint64_t next = (generation(gate_.load(std::memory_order_relaxed)) + 1) * kGeneration;
  gate_.store(next | kOpen);  // seq_cst: pairs with the sleeper's check in work()
  if (sleeping_.load() > 0) {
    { std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  call(0);
  const auto num_workers = static_cast<int>(workers_.size());
  if (until == Until::kEnteredLeft) gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 0;; ++spins) {
    const uint64_t gate = gate_.load(std::memory_order_acquire);
    if (num_left(gate) == (until == Until::kAllLeft ? num_workers : num_entered(gate))) break;
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::call(int thread) {
  try {
    (*body_)(thread);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::offer(SpareWork& work) {
  ZIPAGE_CHECK(!workers_.empty());
  {
    std::lock_guard lock(mutex_);
    append_spare(work);
  }
  wake_.notify_one();
}

void ThreadPool::append_spare(SpareWork& work) {
  work.next_ = nullptr;
  (last_spare_ != nullptr ? last_spare_->next_ : first_spare_) = &work;
  last_spare_ = &work;
  num_spare_.fetch_add(1);
}

bool ThreadPool::run_spare() {
  // Claimed before the lock is taken, so that of many workers that see it one takes the lock.
  int count = num_spare_.load(std::memory_order_relaxed);
  do {
    if (count == 0) return false;
  } while (!num_spare_.compare_exchange_weak(count, count - 1));
  SpareWork* work;
  {
    std::lock_guard lock(mutex_);
    work = std::exchange(first_spare_, first_spare_->next_);
    if (first_spare_ == nullptr) last_spare_ = nullptr;
  }
  if (work->run_part()) {
    std::lock_guard lock(mutex_);
    append_spare(*work);  // this worker looks again before it sleeps: no other needs waking
  }
  return true;
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  for (int spins = 0;;) {
    // Also when a loop has begun: one may follow the other without a gap.
    if (run_spare()) spins = 0;
    uint64_t gate = gate_.load(std::memory_order_acquire);
    if (generation(gate) == seen) {
      if (++spins < kSpins) {
        pause_cpu();
        continue;
      }
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return generation(gate_.load()) != seen || num_spare_.load() > 0; });
      sleeping_.fetch_sub(1);
      continue;
    }
    spins = 0;
    if (stopping_.load()) return;
    seen = generation(gate);
    bool entered = false;
    while (!entered && generation(gate) == seen && (gate & kOpen) != 0)
      entered = gate_.compare_exchange_weak(gate, gate + kEntered, std::memory_order_acq_rel,
                                            std::memory_order_acquire);
    if (!entered) continue;
    call(thread);
    gate_.fetch_add(kLeft, std::memory_order_release);
  }
}

}  // namespace zipage
