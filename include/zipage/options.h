// The options of the method (docs/method.md) and of the engine. Names are those of the flags.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zipage/status.h"

namespace zipage {

// How the entries that survive a compression are chosen (method.md 3.3).
enum class KvPolicy { kPeak, kPaper, kAttention, kRedundancy, kGlobal, kRecency, kRandom };
enum class ScoreReduce { kMax, kSum };           // how history and new score meet (3.1.2)
enum class Pooling { kFirst, kNever, kAlways };  // when the attention score is max-pooled (3.1.3)
enum class Redundancy { kLightning, kFlash, kRaw };  // which pairs of keys are compared (3.1.4)
enum class Combine { kConvex, kSubtract };           // lambda*S-(1-lambda)*R, or S-lambda*R (3.1.5)
enum class Scheduling { kHybrid, kConstrained };     // method.md 5

const char* to_string(KvPolicy);
const char* to_string(ScoreReduce);
const char* to_string(Pooling);
const char* to_string(Redundancy);
const char* to_string(Combine);
const char* to_string(Scheduling);
// Each parse names the accepted words in its error.
Result<KvPolicy> parse_kv_policy(const std::string& text);
Result<ScoreReduce> parse_score_reduce(const std::string& text);
Result<Pooling> parse_pooling(const std::string& text);
Result<Redundancy> parse_redundancy(const std::string& text);
Result<Combine> parse_combine(const std::string& text);
Result<Scheduling> parse_scheduling(const std::string& text);

// kv_budget of an engine or request whose KV cache is not capped.
inline constexpr int64_t kFullKv = 0;

// Scores and selection. A member without a value takes the default of its policy: see resolved().
struct CompressionOptions {
  KvPolicy kv_policy = KvPolicy::kPeak;
  int64_t kv_budget =
      2048;  // tokens kept per layer and KV head, a multiple of block_size; or kFullKv
  int32_t window_size = 16;            // w: queries in the observation window; divides block_size
  std::optional<double> score_weight;  // lambda: 0.2 (paper and its parts), 0.3 (peak)
  double score_decay = 0.8;            // alpha
  ScoreReduce score_reduce = ScoreReduce::kMax;
  Pooling pooling = Pooling::kFirst;
  int32_t pooling_width = 5;
  Redundancy redundancy = Redundancy::kLightning;
  double redundancy_temperature = 0.4;  // tau
  double similarity_threshold = 0.5;    // p
  Combine combine = Combine::kConvex;
  bool derotate = false;              // compare keys turned back by their own position
  int32_t attention_half_life = 128;  // H, tokens
  int32_t sink_tokens = 0;
  bool protect_prompt = false;
  std::optional<int32_t> protect_newest;  // 0 (paper and its parts), 64 (peak)
  int32_t layer_stride = 8;
  uint64_t random_seed = 0;  // policy random

  bool capped() const { return kv_budget != kFullKv; }
  // A copy whose optional members are filled in; or the error that names the option at fault.
  Result<CompressionOptions> resolved(int32_t block_size) const;
};

struct EngineOptions {
  std::string model;            // folder of safetensors files, or a GGUF file
  std::string tokenizer;        // folder; empty: the model's
  std::string device = "auto";  // auto | cpu | cuda
  std::string dtype = "auto";   // auto | float32 | bfloat16 | float16: arithmetic of the layers
  std::string kv_cache_dtype = "auto";  // auto (as dtype) | float32 | bfloat16 | float16
  std::string load_format = "auto";     // auto | safetensors | gguf | dummy
  int64_t max_model_len = 0;            // tokens; 0: the model's
  int32_t block_size = 256;             // tokens a block
  int64_t kv_cache_memory_bytes = 0;    // 0: from gpu_memory_utilization, or 1 GiB on a CPU
  int64_t num_gpu_blocks_override = 0;  // 0: from the memory
  double gpu_memory_utilization = 0.9;
  int64_t swap_space_bytes = 0;
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 0;  // tokens a step; 0: 512 on a CPU, 4096 on a GPU
  int32_t max_queued_requests = 0;     // 0: no limit
  bool enable_prefix_caching = true;
  bool async_compression = true;
  bool enforce_eager = false;  // no CUDA graphs
  Scheduling scheduling = Scheduling::kHybrid;
  CompressionOptions compression;
  // File that records which entries each compression keeps, and their scores (zipage/kv_trace.h);
  // empty: none. Steps wait for compressions while it is written: for looking, not for speed.
  std::string kv_trace;
  int32_t num_threads = 0;  // CPU threads; 0: all cores
  uint64_t seed = 0;
  int32_t tensor_parallel_size = 1;
  // Receives log lines ("info", "warning", ...) and the progress of loading; empty: dropped. Called
  // on the thread that creates the engine or runs its steps.
  std::function<void(const std::string& level, const std::string& line)> log;
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress;
  // Called on the thread that runs steps, after each step's callbacks; must not block. One post a
  // step to another thread goes here.
  std::function<void()> step_done;
};

}  // namespace zipage
