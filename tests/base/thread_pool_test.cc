#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace zipage {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryThreadRunsOnceAndEveryIndexIsTakenOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.num_threads(), GetParam());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(GetParam()));
    pool.run([&](int thread) { calls[static_cast<size_t>(thread)]++; });
    for (const auto& count : calls) ASSERT_EQ(count.load(), 1);
    std::vector<std::atomic<int>> taken(13);
    pool.for_each(13, [&](int64_t index, int thread) {
      EXPECT_LT(thread, pool.num_threads());
      taken[static_cast<size_t>(index)]++;
    });
    for (const auto& count : taken) ASSERT_EQ(count.load(), 1);
    std::vector<std::atomic<int>> seen(101);
    pool.parallel_for(101, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)]++;
    });
    for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
  }
}

TEST_P(ThreadPoolTest, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  EXPECT_THROW(pool.run([](int thread) {
    if (thread == 0) throw std::runtime_error("x");
  }),
               std::runtime_error);
  EXPECT_THROW(pool.for_each(9,
                             [](int64_t index, int) {
                               if (index == 5) throw std::runtime_error("x");
                             }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.run([&](int) { calls++; });
  EXPECT_EQ(calls.load(), GetParam());
}

// Loops so short that workers come late, or not at all: what lies on the caller's stack must not be
// touched once its loop has ended, and two indices of a loop never share a thread's scratch.
TEST_P(ThreadPoolTest, ALateWorkerFindsItsLoopClosed) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20000; ++round) {
    std::vector<int> scratch(static_cast<size_t>(GetParam()), 0);  // not atomic, by intention
    std::vector<int> result(3, -1);
    pool.for_each(3, [&](int64_t index, int thread) {
      int& mine = scratch[static_cast<size_t>(thread)];
      mine += 1;
      result[static_cast<size_t>(index)] = round;
    });
    int total = 0;
    for (const int mine : scratch) total += mine;
    ASSERT_EQ(total, 3);
    for (const int r : result) ASSERT_EQ(r, round);
  }
}

// Counts its parts until there were enough.
class Errand final : public SpareWork {
 public:
  explicit Errand(int parts) : parts_(parts) {}
  bool run_part() noexcept override {
    EXPECT_NE(std::this_thread::get_id(), caller_);
    const int parts = parts_;  // the last part may be this object's end
    return ++num_done_ < parts;
  }
  void wait() const {
    while (num_done_ < parts_) std::this_thread::yield();
  }

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  const int parts_;
  std::atomic<int> num_done_{0};
};

TEST_P(ThreadPoolTest, SpareWorkIsDoneBetweenLoopsAndByASleepingPool) {
  ThreadPool pool(GetParam());
  if (GetParam() == 1) {
    Errand nobody(1);
    EXPECT_ANY_THROW(pool.offer(nobody));
    return;
  }
  for (int round = 0; round < 50; ++round) {
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // all sleep
    Errand first(20), second(30);
    pool.offer(first);
    pool.offer(second);
    for (int loop = 0; loop < round; ++loop) {
      std::vector<int> result(7, -1);
      pool.for_each(7, [&](int64_t index, int) { result[static_cast<size_t>(index)] = loop; });
      for (const int r : result) ASSERT_EQ(r, loop);
    }
    first.wait();
    second.wait();
  }
}

// A loop does not wait for the worker that is at other work: it would never end here.
TEST(ThreadPool, ALoopGoesOnWithoutTheWorkerThatIsAtSpareWork) {
  struct Waits final : SpareWork {
    bool run_part() noexcept override {
      started = true;
      while (!released) std::this_thread::yield();
      ended = true;
      return false;
    }
    std::atomic<bool> started{false}, released{false}, ended{false};
  } work;
  ThreadPool pool(2);
  pool.offer(work);
  while (!work.started) std::this_thread::yield();
  int sum = 0;
  for (int loop = 0; loop < 100; ++loop) pool.for_each(5, [&](int64_t, int) { ++sum; });
  EXPECT_EQ(sum, 500);
  work.released = true;
  while (!work.ended) std::this_thread::yield();
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

}  // namespace
}  // namespace zipage
