#include "schedule/simulate.h"

#include <chrono>
#include <unordered_map>

#include "base/error.h"
#include "schedule/scheduler.h"
#include "schedule/simulate_internal.h"

namespace zipage {
namespace {

SchedulerOptions scheduler_options(const SimulationOptions& options) {
  SchedulerOptions result;
  result.scheduling = options.scheduler == SimulatedScheduler::kHybrid ? Scheduling::kHybrid
                                                                       : Scheduling::kConstrained;
  result.num_blocks = options.num_blocks;
  result.block_size = options.block_size;
  result.max_blocks_per_seq = options.max_blocks_per_seq;
  result.max_query_slots = query_slots(options);
  result.max_num_seqs = options.max_num_seqs;
  result.max_num_batched_tokens = options.max_num_batched_tokens;
  result.num_host_blocks = options.num_host_blocks;
  result.enable_prefix_caching = options.enable_prefix_caching;
  result.watermark = options.watermark;
  result.compression = options.compression;
  return result;
}

// Token ids of no meaning: no two requests agree beyond the shared prefix.
std::vector<int32_t> synthetic_prompt(size_t request, int32_t shared, int32_t own) {
  std::vector<int32_t> tokens(static_cast<size_t>(shared + own));
  for (int32_t i = 0; i < shared; ++i) tokens[static_cast<size_t>(i)] = i;
  for (int32_t i = shared; i < shared + own; ++i) {
    tokens[static_cast<size_t>(i)] =
        static_cast<int32_t>((request * 2654435761u + static_cast<uint32_t>(i)) >> 1);
  }
  return tokens;
}

SimulationResult simulate_scheduler(const SimulationOptions& options,
                                    const std::vector<TraceRequest>& trace) {
  const std::unique_ptr<Scheduler> scheduler = Scheduler::create(scheduler_options(options));
  int32_t longest_output = 0;
  for (const TraceRequest& request : trace)
    longest_output = std::max(longest_output, request.output_tokens);
  std::vector<int32_t> left(trace.size());  // output tokens to come
  std::vector<bool> young(trace.size());    // aged, and not compressed yet
  int64_t num_young = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    SequenceSpec spec;
    spec.id = i;
    spec.prompt =
        synthetic_prompt(i, options.shared_prefix_tokens, trace[i].prompt_tokens + trace[i].age);
    spec.max_new_tokens = longest_output - trace[i].age;  // nobody knows the length of an answer
    spec.kv_budget = options.max_blocks_per_seq > 0
                         ? int64_t{options.max_blocks_per_seq - 1} * options.block_size
                         : kFullKv;
    spec.kv_policy = options.compression.kv_policy;
    const Status status = scheduler->can_ever_run(spec);
    if (!status.ok()) fail(status.code(), "request {}: {}", i, status.message());
    scheduler->add(std::move(spec));
    left[i] = trace[i].output_tokens - trace[i].age;
    young[i] = trace[i].age > 0 && options.max_blocks_per_seq > 0;
    num_young += young[i] ? 1 : 0;
  }

  SimulationResult result;
  StepMeter meter;
  std::vector<RowResult> results;
  while (scheduler->has_unfinished()) {
    const StepPlan& plan = scheduler->plan();
    const SchedulerStats stats = scheduler->stats();
    results.clear();
    for (const PlannedRow& row : plan.rows) {
      RowResult& r = results.emplace_back();
      r.sampled = row.samples;
      if (!row.samples) continue;
      const size_t i = static_cast<size_t>(row.sequence);
      ++result.output_tokens;
      r.finished = --left[i] == 0;
      if (r.finished && young[i]) {
        young[i] = false;
        --num_young;
      }
    }
    result.computed_tokens += plan.num_tokens;
    meter.step(static_cast<int64_t>(plan.rows.size()),
               num_young == 0 && stats.num_waiting + stats.num_swapped > 0,
               options.num_blocks - stats.num_free_blocks);
    for (const CompressJob& job : scheduler->commit(plan, results)) {
      scheduler->compression_done(job, true);
      const size_t i = static_cast<size_t>(job.sequence);
      if (!young[i]) continue;
      young[i] = false;
      --num_young;
    }
  }
  const SchedulerStats stats = scheduler->stats();
  result.recomputed_tokens = stats.recomputed_tokens;
  result.preemptions = stats.preemptions;
  result.compressions = stats.compressions;
  result.blocked_steps = stats.blocked_steps;
  result.prefix_hit_tokens = stats.prefix_hits;
  meter.report(options.num_blocks, result);
  return result;
}

}  // namespace

const char* to_string(SimulatedScheduler scheduler) {
  switch (scheduler) {
    case SimulatedScheduler::kConstrained:
      return "constrained";
    case SimulatedScheduler::kHybrid:
      return "hybrid";
    case SimulatedScheduler::kPublished:
      return "published";
  }
  return "unknown";
}

int32_t query_slots(const SimulationOptions& options) {
  if (options.max_query_slots > 0 || options.max_blocks_per_seq == 0)
    return options.max_query_slots;
  return std::max(1, options.num_blocks / options.max_blocks_per_seq);
}

SimulationResult simulate(const SimulationOptions& options,
                          const std::vector<TraceRequest>& trace) {
  const auto start = std::chrono::steady_clock::now();
  SimulationResult result = options.scheduler == SimulatedScheduler::kPublished
                                ? simulate_published(options, trace)
                                : simulate_scheduler(options, trace);
  result.requests = static_cast<int64_t>(trace.size());
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace zipage
