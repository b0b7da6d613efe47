// Flags that make an engine, shared by every subcommand that runs a model. Names as in vLLM where
// it has them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "zipage/engine.h"

#include "base/log.h"

namespace zipage::cli {

// Text of the flags before they are checked; options() turns them into EngineOptions.
class EngineFlags {
 public:
  // Adds the flags to `command`; `runs`: those of an engine that answers requests too. The object
  // must outlive the parsing.
  void add_to(CLI::App& command, bool runs = true);
  // The first flag whose value is wrong throws kInvalidArgument, by name.
  EngineOptions options() const;
  LogLevel log_level() const;  // of --log-level
  // One for every pair of the comma-separated --kv-policy and --kv-budget; full KV once.
  std::vector<EngineOptions> option_grid() const;
  // An engine with logs on stderr and a bar while it loads.
  std::unique_ptr<Engine> create_engine() const { return create_engine(options()); }
  std::unique_ptr<Engine> create_engine(EngineOptions options) const;

 private:
  void add_method_flags(CLI::App& command);

  EngineOptions options_;
  std::string model_flag_, kv_cache_memory_, swap_space_, max_model_len_, log_level_ = "info",
                                                                          config_dir_, config_;
  double kv_cache_space_gib_ = 0;
  std::string kv_policy_ = "peak", kv_budget_ = "2048", score_reduce_ = "max", pooling_ = "first",
              redundancy_ = "lightning", combine_ = "convex", scheduling_ = "hybrid",
              scheduling_policy_ = "fcfs";
  double score_weight_ = -1;
  int32_t protect_newest_ = -1;
  bool use_attention_sink_ = false;
};

// "64MiB", "48GB", "1024" -> bytes. Throws kInvalidArgument that names `flag`.
int64_t parse_bytes(const std::string& flag, const std::string& text);
// "32k", "8192" -> tokens.
int64_t parse_tokens(const std::string& flag, const std::string& text);
// "full", "none" -> kFullKv, else tokens.
int64_t parse_budget(const std::string& flag, const std::string& text);

}  // namespace zipage::cli
