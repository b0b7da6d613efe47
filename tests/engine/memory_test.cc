// What a running engine may take: nothing new from the heap while it decodes, and no more memory
// than it planned.
#include <atomic>
#include <cstdlib>
#include <new>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine_fixture.h"
#include "support/source.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}

// Counted for the whole program; the tests look at differences.
void* operator new(size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace zipage::testing_engine {
namespace {

TEST(MemoryTest, DecodingAllocatesNothing) {
  EngineOptions options = capped_options();
  options.max_num_seqs = 16;
  const auto engine = make_engine(options);
  int64_t tokens = 0;
  for (const TestProblem& problem : problems(700, 900, 8)) {
    Request request = greedy_request(*engine, problem.prompt, 4096);
    request.sampling.logprobs.reset();
    request.sampling.detokenize = false;
    ASSERT_TRUE(engine->submit(std::move(request), [&](const RequestOutput&) { ++tokens; }).ok());
  }
  // Warm: every buffer has its size, and each request has met its first compressions.
  while (engine->stats().compressions < 20) ASSERT_TRUE(engine->step());
  int64_t calm_steps = 0, calm_allocations = 0, job_allocations = 0, jobs = 0;
  while (calm_steps < 60) {
    const int64_t compressions = engine->stats().compressions;
    const int64_t before = num_allocations.load();
    ASSERT_TRUE(engine->step());
    const int64_t allocations = num_allocations.load() - before;
    const int64_t new_jobs = engine->stats().compressions - compressions;
    jobs += new_jobs;
    (new_jobs > 0 ? job_allocations : calm_allocations) += allocations;
    calm_steps += new_jobs == 0;
  }
  EXPECT_EQ(calm_allocations, 0);
  EXPECT_GT(tokens, 60 * 8);
  // A compression is handed over as a job of its own, with its two block tables, in a batch of a plan.
  EXPECT_LE(job_allocations, 6 * jobs);
  engine->abort(1);
}

TEST(MemoryTest, PeakResidentSizeIsWeightsAndPlanAndLittleMore) {
  constexpr int64_t kKvBytes = int64_t{24} << 20;
  const pid_t child = fork();
  if (child == 0) {
    const std::string command = std::string(ZIPAGE_PROGRAM);
    execl(command.c_str(), "zipage", "eval", model_path().c_str(), "--problems",
          test::source_path("bench/problems/reasoner-long.jsonl").c_str(), "--limit", "10",
          "--max-tokens", "700", "--kv-cache-memory", "24MiB", "--block-size", "64", "--kv-budget",
          "448", "--log-level", "error", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  constexpr int64_t kWeightBytes = 31733568;
  EXPECT_LE(usage.ru_maxrss * 1024, kWeightBytes + kKvBytes + (int64_t{64} << 20));
}

}  // namespace
}  // namespace zipage::testing_engine
