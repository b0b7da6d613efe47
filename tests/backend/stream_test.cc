// Streams and events of the CPU backend.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/error.h"

namespace zipage {
namespace {

using cpu::CpuContext;
using cpu::Task;

// By threads of the pool: none to spare, one, two.
class Streams : public testing::TestWithParam<int> {
 protected:
  static BackendOptions options() {
    BackendOptions o;
    o.num_threads = GetParam();
    return o;
  }
  cpu::CpuBackend backend_{options()};
};

cpu::QueuedStream& as_queued(Stream& stream) { return dynamic_cast<cpu::QueuedStream&>(stream); }

Task fails(const char* what) {
  return Task([what](CpuContext&) { throw std::runtime_error(what); });
}

template <typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST_P(Streams, MainStreamRunsAtOnce) {
  const auto stream = backend_.create_stream(false);
  const auto event = backend_.create_event();
  EXPECT_TRUE(event->query());  // never recorded: nothing to wait for
  int from = 5, to = 0;
  backend_.copy(&to, &from, sizeof from, *stream);
  EXPECT_EQ(to, 5);
  event->record(*stream);
  EXPECT_TRUE(event->query());
  backend_.fill_zero(&to, sizeof to, *stream);
  EXPECT_EQ(to, 0);
}

TEST_P(Streams, WorkerRunsInOrder) {
  const auto stream = backend_.create_stream(true);
  auto& queued = as_queued(*stream);
  std::vector<int> order;
  for (int i = 0; i < 500; ++i) queued.push(Task([&order, i](CpuContext&) { order.push_back(i); }));
  backend_.synchronize(*stream);
  ASSERT_EQ(order.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_P(Streams, ManualStreamRunsWhenTold) {
  const auto stream = backend_.create_manual_stream();
  const auto event = backend_.create_event();
  int from = 1, to = 0;
  backend_.copy(&to, &from, sizeof from, *stream);
  event->record(*stream);
  EXPECT_FALSE(event->query());
  EXPECT_TRUE(stream->run_next());
  EXPECT_EQ(to, 1);
  EXPECT_FALSE(event->query());  // its own mark is still queued
  EXPECT_TRUE(stream->run_next());
  EXPECT_TRUE(event->query());
  EXPECT_FALSE(stream->run_next());
}

TEST_P(Streams, WaitDrivesAManualStreamUpToTheEventOnly) {
  const auto stream = backend_.create_manual_stream();
  const auto event = backend_.create_event();
  int runs = 0;
  stream->push(Task([&](CpuContext&) { ++runs; }));
  event->record(*stream);
  stream->push(Task([&](CpuContext&) { ++runs; }));
  event->wait();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(stream->num_queued(), 1u);
  stream->synchronize();
  EXPECT_EQ(runs, 2);
}

TEST_P(Streams, ArgumentsAreCopiedWithTheirBatch) {
  const auto stream = backend_.create_manual_stream();
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<int32_t> rows = {1, 0};
  std::vector<float> out(4);
  GatherRowsArgs args{DType::kF32, x.data(), rows.data(), 2, 2, out.data()};
  backend_.gather_rows(args, *stream);
  args = {};
  EXPECT_EQ(out, std::vector<float>(4));
  EXPECT_TRUE(stream->run_next());
  EXPECT_EQ(out, (std::vector<float>{3, 4, 1, 2}));
}

TEST_P(Streams, BlockOrdersTwoWorkers) {
  const auto first = backend_.create_stream(true), second = backend_.create_stream(true);
  const auto event = backend_.create_event();
  std::atomic<bool> done{false};
  bool seen = false;
  as_queued(*first).push(Task([&](CpuContext&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  }));
  event->record(*first);
  event->block(*second);
  as_queued(*second).push(Task([&](CpuContext&) { seen = done; }));
  backend_.synchronize(*second);
  EXPECT_TRUE(seen);
  event->block(*backend_.create_stream(false));  // the main stream waits at once
}

// Whoever waits for a stream runs its tasks: a pool's only worker may be at the wait itself.
TEST_P(Streams, AWorkerThatWaitsForAnotherStreamHelpsIt) {
  for (int round = 0; round < 200; ++round) {
    std::vector<int> order;
    const auto half = backend_.create_event(), whole = backend_.create_event();
    const auto first = backend_.create_stream(true), second = backend_.create_stream(true);
    for (int i = 0; i < 4; ++i) {
      as_queued(*first).push(Task([&order, i](CpuContext&) { order.push_back(i); }));
      if (i == 1) half->record(*first);
    }
    whole->record(*first);
    whole->block(*second);
    as_queued(*second).push(Task([&order](CpuContext&) { order.push_back(4); }));
    half->wait();  // the caller runs a part of the first stream, and leaves
    while (as_queued(*second).num_queued() > 0) std::this_thread::yield();
    backend_.synchronize(*second);
    ASSERT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  }
}

// Each stream waits for the other in turn. A waiter that ran more of a stream than it waits for
// might come upon a wait for the task it is in the middle of.
TEST_P(Streams, TwoStreamsWaitForEachOther) {
  for (int round = 0; round < 200; ++round) {
    std::vector<int> order;
    std::vector<std::unique_ptr<Event>> events;
    const auto first = backend_.create_stream(true), second = backend_.create_stream(true);
    for (int i = 0; i < 6; ++i) {
      Stream& here = i % 2 == 0 ? *first : *second;
      Stream& there = i % 2 == 0 ? *second : *first;
      as_queued(here).push(Task([&order, i](CpuContext&) { order.push_back(i); }));
      events.push_back(backend_.create_event());
      events.back()->record(here);
      events.back()->block(there);
    }
    if (round % 2 == 0) events[static_cast<size_t>(round / 2 % 6)]->wait();
    backend_.synchronize(*first);
    backend_.synchronize(*second);
    ASSERT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  }
}

TEST_P(Streams, AnEventRecordedAgainElsewhereStaysReached) {
  const auto stream = backend_.create_manual_stream();
  const auto event = backend_.create_event();
  event->record(*stream);
  event->record(*backend_.create_stream(false));
  EXPECT_TRUE(event->query());
  EXPECT_TRUE(stream->run_next());
  EXPECT_TRUE(event->query());
  event->wait();
}

// A stream's tasks run between the loops of the pool's owner, one at a time and in order.
TEST_P(Streams, TasksRunBesideTheLoopsOfThePool) {
  int64_t count = 0;  // not atomic, by intention
  const auto stream = backend_.create_stream(true), main = backend_.create_stream(false);
  auto& queued = as_queued(*stream);
  CpuContext& context = *dynamic_cast<cpu::CpuStream&>(*main).immediate();
  const auto event = backend_.create_event();
  for (int round = 1; round <= 300; ++round) {
    for (int i = 0; i < 5; ++i) queued.push(Task([&](CpuContext&) { ++count; }));
    event->record(*stream);
    std::atomic<int> sum{0};
    context.pool->for_each(8, [&](int64_t, int) { ++sum; });
    ASSERT_EQ(sum, 8);
    if (round % 3 == 0) {
      event->wait();
      ASSERT_EQ(count, 5 * round);
    } else if (round % 3 == 1) {
      while (!event->query()) context.pool->for_each(8, [&](int64_t, int) { ++sum; });
    }
  }
  backend_.synchronize(*stream);
  EXPECT_EQ(count, 1500);
}

TEST_P(Streams, FailureGoesToTheEventAfterIt) {
  const auto stream = backend_.create_manual_stream();
  const auto good = backend_.create_event(), bad = backend_.create_event(),
             later = backend_.create_event();
  int runs = 0;
  good->record(*stream);
  stream->push(fails("first job"));
  stream->push(Task([&](CpuContext&) { runs += 10; }));  // of the failed job: skipped
  bad->record(*stream);
  stream->push(Task([&](CpuContext&) { runs += 1; }));  // the next job: runs
  later->record(*stream);
  while (stream->run_next()) {
  }
  EXPECT_TRUE(good->query());
  EXPECT_EQ(message_of([&] { bad->query(); }), "first job");
  EXPECT_EQ(message_of([&] { bad->wait(); }), "first job");
  EXPECT_TRUE(later->query());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(message_of([&] { stream->synchronize(); }), "no error");  // reported already
  bad->record(*stream);
  EXPECT_EQ(message_of([&] { bad->wait(); }), "no error");
}

TEST_P(Streams, SynchronizeReportsAFailureOnce) {
  const auto stream = backend_.create_stream(true);
  as_queued(*stream).push(fails("lost?"));
  EXPECT_EQ(message_of([&] { backend_.synchronize(*stream); }), "lost?");
  EXPECT_EQ(message_of([&] { backend_.synchronize(*stream); }), "no error");
}

TEST_P(Streams, FailureThatNoOneAskedForSurfacesAtSynchronize) {
  const auto stream = backend_.create_manual_stream();
  const auto event = backend_.create_event();
  stream->push(fails("unseen"));
  event->record(*stream);
  EXPECT_EQ(message_of([&] { stream->synchronize(); }), "unseen");
}

TEST_P(Streams, WorkerFinishesItsQueueAtTheEnd) {
  std::atomic<int> runs{0};
  {
    const auto stream = backend_.create_stream(true);
    for (int i = 0; i < 100; ++i) {
      as_queued(*stream).push(Task([&](CpuContext&) { ++runs; }));
    }
  }
  EXPECT_EQ(runs, 100);
}

TEST_P(Streams, MemoryIsAlignedAndAskingForTooMuchIsAnError) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, (size_t{3} << 20) + 5}) {
    const Buffer buffer = backend_.allocate(bytes, MemorySpace::kDevice);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    buffer.data()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(message_of([&] {
              backend_.allocate(size_t{1} << 50, MemorySpace::kHost);
            }).find("cannot allocate 1125899906842624"),
            0u);
}

INSTANTIATE_TEST_SUITE_P(Threads, Streams, testing::Values(1, 2, 3));

}  // namespace
}  // namespace zipage
