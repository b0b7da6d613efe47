// The inference engine: submit requests, run steps, receive tokens. Implemented in src/engine.
//
//   Result<std::unique_ptr<Engine>> engine = Engine::create(options);
//   engine.value()->submit(request, [](const RequestOutput& output) { ... });
//   engine.value()->run_until_idle();
//
// Threads: submit(), abort(), stats(), health() and reset_prefix_cache() may be called from any
// thread. Callbacks run on the thread that runs steps: the caller of step() or run_until_idle(), or
// the background thread after start(). A callback must not block; it may call submit() and abort().
// docs/engine-contract.md states ownership, order and what happens on failure.
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
  // 1 is the most likely token. Of the token itself: how many are at least as likely, so that equals
  // share the rank of the last of them. Of an alternative: its place in the list.
  int32_t rank = 0;
};

struct Request {
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling;
  // Smaller values run first. Other than 0 only with SchedulingPolicy::kPriority.
  int32_t priority = 0;
  // Requests share prefix-cache entries only if their salts are equal.
  std::string cache_salt;
  // The caller's own name of the request, for logs and traces. May be empty.
  std::string external_id;
};

// What one step adds to one sequence of a request.
struct RequestOutput {
  RequestId request_id = 0;
  // Which of the request's sampling.n sequences this is, from 0.
  int32_t index = 0;
  std::vector<int32_t> new_token_ids;
  // Whole UTF-8 characters. Empty when sampling.detokenize is off.
  std::string new_text;
  // One list per new token: the sampled token first, then the most likely ones in order.
  std::vector<std::vector<TokenLogprob>> new_logprobs;
  // One list per prompt token: the token itself first, then the most likely ones. The first token's
  // list is empty. Comes with the first output of index 0, if the request asked for
  // prompt_logprobs.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  // The stop string, or the stop token's id in decimal. Empty when EOS ended the sequence.
  std::string stop_reason;
  // Why the sequence failed; set with FinishReason::kError.
  Status error;
  int64_t num_prompt_tokens = 0;
  // Prompt tokens whose KV came from the prefix cache.
  int64_t num_cached_tokens = 0;
  // Wall time of this sequence so far, by phase: from submit() to the start of the first step that
  // computes a token of it; from there to its first output token; from there to this output. A
  // phase that has not begun is 0, and the three add up to the time since submit().
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  bool finished() const { return finish_reason != FinishReason::kNone; }
};

// The engine owns the output and reuses it: copy what must outlive the call.
using OutputCallback = std::function<void(const RequestOutput&)>;

// A snapshot of gauges, and counters since the start.
struct EngineStats {
  // Sequences by state.
  int64_t num_running = 0, num_waiting = 0, num_swapped = 0, num_compressing = 0;
  // KV blocks. A cached block is free too: it holds a prompt's KV until someone needs the block.
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;
  int64_t num_query_slots = 0, num_used_query_slots = 0;
  // Prompt tokens computed (those of the prefix cache are prefix_cache_hits, those computed again
  // after a preemption are recomputed_tokens), and tokens sampled.
  int64_t prompt_tokens = 0, generation_tokens = 0;
  int64_t recomputed_tokens = 0, preemptions = 0, compressions = 0, steps = 0;
  // In tokens: prompt tokens looked up in the prefix cache, and those found.
  int64_t prefix_cache_queries = 0, prefix_cache_hits = 0;
  int64_t swapped_out_blocks = 0, swapped_in_blocks = 0;
  int64_t evicted_tokens = 0;
  // KV entries that attention read, summed over the rows of every step.
  int64_t kv_entries_read = 0;
  double compression_seconds = 0;
  // Wall time of all steps, and of their parts.
  double step_seconds = 0, schedule_seconds = 0, attention_seconds = 0, linear_seconds = 0,
         sample_seconds = 0, other_seconds = 0;
};

// What Engine::create() found in the model and decided about memory.
struct EngineInfo {
  std::string model_name, architecture, device, dtype, kv_cache_dtype;
  // "cpu" or "cuda".
  std::string device_kind;
  int64_t num_parameters = 0, weight_bytes = 0, vocab_size = 0, max_model_len = 0;
  // Bytes of the weights that one decode step reads: all but an input embedding that is not tied to
  // the output.
  int64_t step_weight_bytes = 0;
  int32_t num_layers = 0, num_kv_heads = 0, head_dim = 0, block_size = 0;
  // N_total, M and N_max of docs/method.md.
  int64_t num_blocks = 0, max_query_slots = 0, max_blocks_per_seq = 0;
  int64_t kv_bytes = 0, scratch_bytes = 0, planned_bytes = 0;
  CompressionOptions compression;
  // The memory plan in one line, for logs.
  std::string plan_line;
};

// See zipage/tokenizer.h.
class Tokenizer;

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  virtual ~Engine() = default;

  // Queues a request. Its parameters are checked and prepared (bad_words are tokenised) on the
  // calling thread. Fails if it can never run (kInvalidArgument, naming the field), or if the queue
  // is full (kResourceExhausted).
  virtual Result<RequestId> submit(Request request, OutputCallback callback) = 0;
  // Ends a request; its callback gets FinishReason::kAbort. Ignores unknown and finished ids.
  virtual void abort(RequestId id) = 0;

  // Runs one step on the calling thread. Returns false if there is nothing to do.
  virtual bool step() = 0;
  // Runs steps until no request is left, or stop() is called.
  virtual void run_until_idle() = 0;
  // Runs steps on a background thread until stop() or destruction.
  virtual void start() = 0;
  virtual void stop() = 0;

  virtual EngineStats stats() const = 0;
  // Ok while the engine can serve. Otherwise the reason why it never will again: a bug of ours
  // (kInternal) or a device that is lost (kUnavailable). Every request has then ended with kError,
  // submit() returns this status, and only a new engine helps.
  virtual Status health() const = 0;
  virtual const EngineInfo& info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // From the model's generation_config.json; temperature 1 where it says nothing.
  virtual SamplingParams default_sampling_params() const = 0;
  virtual void reset_prefix_cache() = 0;
  // Times the parts of each step on a GPU (EngineStats::attention_seconds and the like). Steps then
  // run op by op, which is slower. A CPU always times them. Call from the thread that runs steps.
  virtual void set_profiling(bool on) = 0;
};

}  // namespace zipage
