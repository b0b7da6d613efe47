// Replays a trace of requests through the scheduler without tensors (`zipage bench schedule`): how
// many requests run at once and how many tokens are recomputed, under each scheduling policy and
// under a model of the published implementation's scheduler.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zipage/options.h"

namespace zipage {

// kPublished: a model of the published implementation's scheduler (method.md 7): prompts before
// decodes and never together, no watermark, prefix hits neither counted nor kept, max_num_seqs
// bounding one batch of prompts only.
enum class SimulatedScheduler { kConstrained, kHybrid, kPublished };
const char* to_string(SimulatedScheduler scheduler);

struct SimulationOptions {
  SimulatedScheduler scheduler = SimulatedScheduler::kHybrid;
  int32_t num_blocks = 1260;
  int32_t block_size = 256;
  // N_max; 0: full KV.
  int32_t max_blocks_per_seq = 8;
  // M; 0: num_blocks / N_max.
  int32_t max_query_slots = 0;
  int32_t max_num_seqs = 512;
  int32_t max_num_batched_tokens = 2048;
  int32_t num_host_blocks = 0;
  // Put before every prompt, the same for all.
  int32_t shared_prefix_tokens = 0;
  bool enable_prefix_caching = true;
  // Of the scheduler's admission.
  bool watermark = true;
  // Resolved; kv_budget is ignored.
  CompressionOptions compression;
};

struct TraceRequest {
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  // Output tokens it has when the clock starts.
  int32_t age = 0;
};

struct SimulationResult {
  int64_t requests = 0;
  int64_t steps = 0;
  // Sampled
  int64_t output_tokens = 0;
  // Prompts and recomputed ones too.
  int64_t computed_tokens = 0;
  // Computed before, lost to a preemption.
  int64_t recomputed_tokens = 0;
  // Of output_tokens.
  double recomputed_fraction = 0;
  int64_t preemptions = 0;
  int64_t compressions = 0;
  // Steps of sequences that were running and could not be computed.
  int64_t blocked_steps = 0;
  int64_t prefix_hit_tokens = 0;
  int32_t peak_running = 0;
  // Sequences computed a step.
  double mean_running = 0;
  // While requests wait, after the aged requests' first compression.
  double mean_running_steady = 0;
  int64_t steady_steps = 0;
  // Fraction of num_blocks.
  double mean_blocks_used = 0;
  // Of the simulation.
  double seconds = 0;
};

// Rows {"prompt_tokens", "output_tokens", "age"} (age may be left out; less than output_tokens), of
// `zipage bench throughput` too. Throws Error naming file and line.
std::vector<TraceRequest> read_trace(const std::string& path);

// Compression is synchronous: one step of the others. Throws Error when a request can never fit.
SimulationResult simulate(const SimulationOptions& options, const std::vector<TraceRequest>& trace);

}  // namespace zipage
