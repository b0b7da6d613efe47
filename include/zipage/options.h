// Options of the compression method (docs/method.md) and of the engine. A member `kv_budget` is the
// flag `--kv-budget` of the program and the field "kv_budget" of the Python package.
//
//   EngineOptions options;
//   options.model = "models/reasoner-16m";
//   options.compression.kv_budget = 512;
//
// Threads: plain values. Implemented in src/base/options.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zipage/kv_policy.h"
#include "zipage/status.h"

namespace zipage {

// How the history F and a new attention score are joined (3.1.2).
enum class ScoreReduce { kMax, kSum };
// Which compressions max-pool the attention score (3.1.3).
enum class Pooling { kFirst, kNever, kAlways };
// Which pairs of keys the redundancy score compares (3.1.4).
enum class Redundancy { kLightning, kFlash, kRaw };
// kConvex: lambda * S - (1 - lambda) * R. kSubtract: S - lambda * R (3.1.5).
enum class Combine { kConvex, kSubtract };
// Which waiting requests are admitted (method.md 5).
enum class Scheduling { kHybrid, kConstrained };
// kFcfs: requests are served in the order of their arrival. kPriority: by Request::priority, the
// smallest first, then by arrival; a stream of urgent requests can then starve the others.
enum class SchedulingPolicy { kFcfs, kPriority };

const char* to_string(KvPolicy);
const char* to_string(ScoreReduce);
const char* to_string(Pooling);
const char* to_string(Redundancy);
const char* to_string(Combine);
const char* to_string(Scheduling);
const char* to_string(SchedulingPolicy);
// Each parser's error quotes the text and lists the accepted words. The caller adds whose value it
// is: a flag's or a field's.
Result<KvPolicy> parse_kv_policy(const std::string& text);
Result<ScoreReduce> parse_score_reduce(const std::string& text);
Result<Pooling> parse_pooling(const std::string& text);
Result<Redundancy> parse_redundancy(const std::string& text);
Result<Combine> parse_combine(const std::string& text);
Result<Scheduling> parse_scheduling(const std::string& text);
Result<SchedulingPolicy> parse_scheduling_policy(const std::string& text);

// The kv_budget of an engine or request whose KV cache is not capped.
inline constexpr int64_t kFullKv = 0;

// Scores and selection. An optional member without a value takes its policy's default; see
// resolved().
struct CompressionOptions {
  KvPolicy kv_policy = KvPolicy::kPeak;
  // Tokens kept per layer and KV head: a multiple of block_size, or kFullKv.
  int64_t kv_budget = 2048;
  // w: how many of the newest queries score the cached tokens. Divides block_size.
  int32_t window_size = 16;
  // lambda. Default: the policy's (kv_policy.h).
  std::optional<double> score_weight;
  // alpha: how fast the history F decays.
  double score_decay = 0.8;
  ScoreReduce score_reduce = ScoreReduce::kMax;
  Pooling pooling = Pooling::kFirst;
  int32_t pooling_width = 5;
  Redundancy redundancy = Redundancy::kLightning;
  // tau.
  double redundancy_temperature = 0.4;
  // p: keys whose cosine similarity is above it count as similar.
  double similarity_threshold = 0.5;
  Combine combine = Combine::kConvex;
  // Undo each key's rotary embedding before keys are compared.
  bool derotate = false;
  // H, in tokens.
  int32_t attention_half_life = 128;
  int32_t sink_tokens = 0;
  bool protect_prompt = false;
  // Newest tokens that are never evicted. Default: the policy's.
  std::optional<int32_t> protect_newest;
  int32_t layer_stride = 8;
  // For policy random.
  uint64_t random_seed = 0;

  bool capped() const { return kv_budget != kFullKv; }
  // A copy for requests of `policy`: members without a value (and sink_tokens 0) take its defaults.
  // Call it on options as the user gave them; a copy keeps the defaults of its policy.
  CompressionOptions for_policy(KvPolicy policy) const;
  // for_policy(kv_policy), checked, or an error that names the option at fault.
  Result<CompressionOptions> resolved(int32_t block_size) const;
};

struct EngineOptions {
  // A folder of safetensors files, or a GGUF file.
  std::string model;
  // A folder with the tokenizer's files. Empty: the model's own.
  std::string tokenizer;
  // auto | cpu | cuda
  std::string device = "auto";
  // Arithmetic of the layers: auto | float32 | bfloat16 | float16
  std::string dtype = "auto";
  // auto (as dtype) | float32 | bfloat16 | float16
  std::string kv_cache_dtype = "auto";
  // auto | safetensors | gguf | dummy
  std::string load_format = "auto";
  // In tokens. 0: the model's own limit.
  int64_t max_model_len = 0;
  // Tokens per KV block.
  int32_t block_size = 256;
  // 0: derived from gpu_memory_utilization on a GPU, a quarter of the free memory on a CPU.
  int64_t kv_cache_memory_bytes = 0;
  // 0: as many blocks as the memory holds.
  int64_t num_gpu_blocks_override = 0;
  double gpu_memory_utilization = 0.9;
  int64_t swap_space_bytes = 0;
  int32_t max_num_seqs = 256;
  // Tokens per step. 0: 512 on a CPU, 4096 on a GPU.
  int32_t max_num_batched_tokens = 0;
  // Most unfinished sequences (a request counts as sampling.n), running or waiting. 0: no limit.
  int32_t max_queued_requests = 0;
  bool enable_prefix_caching = true;
  bool async_compression = true;
  // Run without CUDA graphs.
  bool enforce_eager = false;
  Scheduling scheduling = Scheduling::kHybrid;
  // The order in which requests are served.
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  CompressionOptions compression;
  // A file that records which entries each compression keeps, and their scores (zipage/kv_trace.h).
  // Empty: none. Steps wait for each compression while it is written, so it is for study, not for
  // speed.
  std::string kv_trace;
  // CPU threads. 0: all cores.
  int32_t num_threads = 0;
  // Seed of requests that bring none. Without a value: a random one, named in the log.
  std::optional<uint64_t> seed;
  int32_t tensor_parallel_size = 1;
  // Receive log lines (level "info", "warning", ...) and the progress of loading. Empty: dropped.
  // Called on the thread that creates the engine or runs its steps.
  std::function<void(const std::string& level, const std::string& line)> log;
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress;
  // Called once per step after its callbacks, on the thread that runs steps. Must not block. The
  // place to hand a step's tokens to another thread in one post.
  std::function<void()> step_done;
};

}  // namespace zipage
