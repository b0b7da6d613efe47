// The inference engine: submit requests, run steps, receive tokens.
//
// Threads: submit(), abort() and stats() may be called from any thread. Callbacks run on the thread
// that runs steps: the caller of step() / run_until_idle(), or the background thread after start().
// A callback must not block and may call submit() and abort().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zipage/options.h"
#include "zipage/sampling_params.h"
#include "zipage/status.h"

namespace zipage {

using RequestId = uint64_t;

enum class FinishReason { kNone, kStop, kLength, kAbort, kError };

constexpr const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1: the most likely
};

struct Request {
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling;
  int32_t priority = 0;     // smaller runs first
  std::string cache_salt;   // separates prefix-cache entries
  std::string external_id;  // for logs; may be empty
};

// What one step adds to one sequence (`index` < sampling.n) of a request.
struct RequestOutput {
  RequestId request_id = 0;
  int32_t index = 0;
  std::vector<int32_t> new_token_ids;
  std::string new_text;  // whole UTF-8 characters; empty when detokenize is off
  std::vector<std::vector<TokenLogprob>>
      new_logprobs;  // one a new token: [0] the sampled one, then the best
  // With the first output of index 0, when the request asks for them: one a prompt token, [0] the
  // token itself, then the best. The first one's is empty.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;  // the stop string, or the stop token's id in decimal; empty for EOS
  Status error;             // with kError
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;  // prompt tokens taken from the prefix cache
  double queue_seconds = 0;       // from submit() to the first step with a row of the sequence
  bool finished() const { return finish_reason != FinishReason::kNone; }
};

// The output is the engine's and is reused: copy what must outlive the call.
using OutputCallback = std::function<void(const RequestOutput&)>;

struct EngineStats {
  int64_t num_running = 0, num_waiting = 0, num_swapped = 0, num_compressing = 0;
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;  // cached ones are free
  int64_t num_query_slots = 0, num_used_query_slots = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0;  // since the start
  int64_t recomputed_tokens = 0, preemptions = 0, compressions = 0, steps = 0;
  int64_t prefix_cache_queries = 0, prefix_cache_hits = 0;  // tokens
  int64_t swapped_out_blocks = 0, swapped_in_blocks = 0;
  int64_t evicted_tokens = 0;
  int64_t kv_entries_read = 0;  // by attention: stored entries of every row of every step
  double compression_seconds = 0;
  // Wall time of the steps by part.
  double step_seconds = 0, schedule_seconds = 0, attention_seconds = 0, linear_seconds = 0,
         sample_seconds = 0, other_seconds = 0;
};

// What the engine decided at its start.
struct EngineInfo {
  std::string model_name, architecture, device, dtype, kv_cache_dtype;
  std::string device_kind;  // "cpu" | "cuda"
  int64_t num_parameters = 0, weight_bytes = 0, vocab_size = 0, max_model_len = 0;
  int64_t step_weight_bytes =
      0;  // of the weights that a step reads: without an embedding of its own
  int32_t num_layers = 0, num_kv_heads = 0, head_dim = 0, block_size = 0;
  int64_t num_blocks = 0, max_query_slots = 0, max_blocks_per_seq = 0;  // N_total, M, N_max
  int64_t kv_bytes = 0, scratch_bytes = 0, planned_bytes = 0;
  CompressionOptions compression;
  std::string plan_line;  // one line for logs
};

class Tokenizer;  // zipage/tokenizer.h

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  virtual ~Engine() = default;

  // Queues a request. Fails when it can never run or the queue is full.
  virtual Result<RequestId> submit(Request request, OutputCallback callback) = 0;
  // Ends a request; its callback gets kAbort. Unknown or finished ids are ignored.
  virtual void abort(RequestId id) = 0;

  // Runs one step on the calling thread. False when there is nothing to do.
  virtual bool step() = 0;
  // Runs steps until no request is left, or stop() is called.
  virtual void run_until_idle() = 0;
  // Runs steps on a thread of the engine's own until stop() or destruction.
  virtual void start() = 0;
  virtual void stop() = 0;

  virtual EngineStats stats() const = 0;
  virtual const EngineInfo& info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // From generation_config.json; temperature 1 where the model says nothing.
  virtual SamplingParams default_sampling_params() const = 0;
  virtual void reset_prefix_cache() = 0;
  // Times the parts of each step on a GPU (stats: attention_seconds, ...): steps then run op by op,
  // and slower. On a CPU they are always timed. Call from the thread that runs steps.
  virtual void set_profiling(bool on) = 0;
};

}  // namespace zipage
