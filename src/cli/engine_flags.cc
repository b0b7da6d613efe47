#include "cli/engine_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/kv_policy_names.h"
#include "cli/command.h"
#include "cli/console.h"

namespace zipage::cli {
namespace {

// A number and the unit that follows it; kInvalidArgument when there is no number.
double parse_number(const std::string& flag,
                    const std::string& text,
                    std::string* unit,
                    const char* expected) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) {
    fail_invalid("{}: '{}' is not {}", flag, text, expected);
  }
  *unit = std::string(rest, end);
  std::transform(unit->begin(), unit->end(), unit->begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return number;
}

// "a,b" -> {"a", "b"}; an empty text is one empty word.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

template <typename T>
T parsed(const std::string& flag, Result<T> result) {
  if (!result.ok()) fail_invalid("{}: {}", flag, result.status().message());
  return std::move(result).value();
}

}  // namespace

int64_t parse_bytes(const std::string& flag, const std::string& text) {
  constexpr const char* kExpected = "a size such as 64MiB, 48GB or a number of bytes";
  std::string unit;
  const double number = parse_number(flag, text, &unit, kExpected);
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},         {"b", 1},        {"kb", 1e3},     {"mb", 1e6},
                             {"gb", 1e9},     {"tb", 1e12},    {"kib", 0x1p10}, {"mib", 0x1p20},
                             {"gib", 0x1p30}, {"tib", 0x1p40}, {"k", 0x1p10},   {"m", 0x1p20},
                             {"g", 0x1p30}};
  for (const Unit& candidate : kUnits) {
    if (unit == candidate.name && number * candidate.bytes < 0x1p62) {
      return static_cast<int64_t>(number * candidate.bytes);
    }
  }
  fail_invalid("{}: '{}' is not {}", flag, text, kExpected);
}

int64_t parse_tokens(const std::string& flag, const std::string& text) {
  constexpr const char* kExpected = "a number of tokens such as 8192 or 32k";
  std::string unit;
  const double number = parse_number(flag, text, &unit, kExpected);
  const double scale = unit.empty() ? 1 : unit == "k" ? 1024 : unit == "m" ? 1048576 : 0;
  const double tokens = number * scale;
  if (scale == 0 || tokens > 1e12 || tokens != std::floor(tokens)) {
    fail_invalid("{}: '{}' is not {}", flag, text, kExpected);
  }
  return static_cast<int64_t>(tokens);
}

int64_t parse_budget(const std::string& flag, const std::string& text) {
  if (text == "full") return kFullKv;
  const int64_t tokens = parse_tokens(flag, text);
  if (tokens < 1) fail_invalid("{}: '{}' is not a number of tokens above 0, or full", flag, text);
  return tokens;
}

void EngineFlags::add_to(CLI::App& command, bool runs) {
  const auto env = [](CLI::Option* option) {
    std::string name = "ZIPAGE_" + option->get_lnames().front();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    option->envname(name);
  };
  const size_t before = command.get_options().size();
  command.add_option("MODEL", options_.model,
                     "Folder with config.json and safetensors files, or a GGUF file");
  command.add_option("-m,--model", model_flag_, "The same as MODEL");
  command.add_option("--tokenizer", options_.tokenizer,
                     "Folder of the tokenizer (default: the model's)");
  command.add_option("--device", options_.device, "auto, cpu or cuda")->capture_default_str();
  command
      .add_option("--dtype", options_.dtype,
                  "auto, float32, bfloat16 or float16: arithmetic of the layers")
      ->capture_default_str();
  command
      .add_option("--kv-cache-dtype", options_.kv_cache_dtype,
                  "auto (as dtype), float32, bfloat16 or float16")
      ->capture_default_str();
  command
      .add_option("--load-format", options_.load_format,
                  "auto, safetensors, gguf or dummy (random weights)")
      ->capture_default_str();
  command.add_option("--config-dir", config_dir_,
                     "Folder with config.json for --load-format dummy");
  command.add_option("--max-model-len,--context-length,-c", max_model_len_,
                     "Longest prompt + output, in tokens (32k)");
  command.add_option("--block-size", options_.block_size, "Tokens a KV block")
      ->capture_default_str();
  command.add_option(
      "--kv-cache-memory,--kv-cache-memory-bytes", kv_cache_memory_,
      "Memory for KV blocks and query slots, on a CPU for compression scratch too (64MiB, 48GB). "
      "Default: --gpu-memory-utilization of a GPU, a quarter of the free memory on a CPU");
  command.add_option("--kv-cache-space", kv_cache_space_gib_, "The same in GiB");
  command.add_option("--num-gpu-blocks-override", options_.num_gpu_blocks_override,
                     "Number of KV blocks, whatever fits");
  command
      .add_option("--gpu-memory-utilization", options_.gpu_memory_utilization,
                  "Share of a GPU's memory to use")
      ->capture_default_str();
  command.add_option("--swap-space", swap_space_,
                     "Host memory for preempted requests (4GiB; default 0)");
  command.add_option("--max-num-seqs", options_.max_num_seqs, "Most running requests")
      ->capture_default_str();
  command
      .add_option("--max-num-batched-tokens", options_.max_num_batched_tokens, "Most tokens a step")
      ->capture_default_str();
  command.add_option("--max-queued-requests", options_.max_queued_requests,
                     "Most waiting requests (0: no limit)");
  command.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching",
                   options_.enable_prefix_caching,
                   "Share the KV of equal prompt beginnings (default on)");
  command.add_flag("--async-compression,!--no-async-compression", options_.async_compression,
                   "Compress while others decode (default on)");
  command.add_flag("--enforce-eager", options_.enforce_eager, "No CUDA graphs");
  command.add_option("-t,--threads", options_.num_threads,
                     "CPU threads (default: the CPUs that affinity and cgroup quota leave)");
  command.add_option("--seed", options_.seed,
                     "Seed of requests that bring none (default: a random one, named in the log)");
  command
      .add_option("--scheduling-policy", scheduling_policy_,
                  "fcfs (requests in order of arrival; a priority is refused) or priority")
      ->capture_default_str();
  command.add_option("--tensor-parallel-size,--tp", options_.tensor_parallel_size,
                     "GPUs that share the model");
  add_method_flags(command);
  if (runs) {
    command.add_option("--kv-trace", options_.kv_trace,
                       "Record what each compression keeps in this file ('zipage inspect "
                       "--kv-trace' reads it); slower");
  }
  command.add_option("--log-level", log_level_, "debug, info, warning or error")
      ->capture_default_str();
  command.add_option("--config", config_,
                     "YAML file of these flags; the command line and ZIPAGE_* win over it");
  const auto options = command.get_options();
  for (size_t i = before; i < options.size(); ++i) {
    if (!options[i]->get_lnames().empty()) env(options[i]);
  }
}

void EngineFlags::add_method_flags(CLI::App& command) {
  CompressionOptions& c = options_.compression;
  const std::string group = "Method";
  const auto in_group = [&](CLI::Option* option) { option->group(group); };
  in_group(command.add_option("--kv-policy", kv_policy_, std::string(kv_policy_names()))
               ->capture_default_str());
  in_group(command
               .add_option("--kv-budget", kv_budget_,
                           "Tokens kept per layer and head (2048, 32k), or full")
               ->capture_default_str());
  in_group(command.add_option("--scheduling", scheduling_, "hybrid or constrained")
               ->capture_default_str());
  in_group(command.add_option("--window-size", c.window_size, "w: queries that score")
               ->capture_default_str());
  in_group(command.add_option("--score-weight", score_weight_,
                              "lambda (default: the policy's, 0.3 for peak)"));
  in_group(command.add_option("--score-decay", c.score_decay, "alpha")->capture_default_str());
  in_group(
      command.add_option("--score-reduce", score_reduce_, "max or sum")->capture_default_str());
  in_group(
      command.add_option("--pooling", pooling_, "first, never or always")->capture_default_str());
  in_group(
      command.add_option("--pooling-width", c.pooling_width, "Entries")->capture_default_str());
  in_group(command.add_option("--redundancy", redundancy_, "lightning, flash or raw")
               ->capture_default_str());
  in_group(command.add_option("--redundancy-temperature", c.redundancy_temperature, "tau")
               ->capture_default_str());
  in_group(command.add_option("--similarity-threshold", c.similarity_threshold, "p")
               ->capture_default_str());
  in_group(command.add_option("--combine", combine_, "convex or subtract")->capture_default_str());
  in_group(
      command.add_flag("--derotate", c.derotate, "Compare keys turned back by their position"));
  in_group(command.add_option("--attention-half-life", c.attention_half_life, "H, tokens (peak)")
               ->capture_default_str());
  in_group(command.add_option("--sink-tokens", c.sink_tokens, "First tokens that always stay")
               ->capture_default_str());
  in_group(
      command.add_flag("--use-attention-sink", use_attention_sink_, "The same as --sink-tokens 4"));
  in_group(command.add_flag("--protect-prompt", c.protect_prompt, "The prompt always stays"));
  in_group(
      command.add_option("--protect-newest", protect_newest_,
                         "Newest entries that always stay (default: the policy's, 64 for peak)"));
  in_group(command.add_option("--layer-stride", c.layer_stride, "Layers compressed at a time")
               ->capture_default_str());
  in_group(command.add_option("--random-seed", c.random_seed, "Seed of policy random")
               ->capture_default_str());
}

EngineOptions EngineFlags::options() const {
  std::vector<EngineOptions> grid = option_grid();
  if (grid.size() > 1)
    fail_invalid("--kv-policy, --kv-budget: give one of each here; lists are for 'zipage eval'");
  return grid.front();
}

std::vector<EngineOptions> EngineFlags::option_grid() const {
  EngineOptions o = options_;
  if (!model_flag_.empty() && !o.model.empty()) fail_invalid("--model: the model is given twice");
  if (!model_flag_.empty()) o.model = model_flag_;
  if (!config_dir_.empty()) {
    if (o.load_format != "dummy") fail_invalid("--config-dir: only with --load-format dummy");
    if (!o.model.empty()) fail_invalid("--config-dir: the model is given twice");
    o.model = config_dir_;
  }
  if (o.model.empty()) fail_invalid("MODEL: missing; give a model folder or a GGUF file");
  if (!kv_cache_memory_.empty() && kv_cache_space_gib_ > 0) {
    fail_invalid("--kv-cache-space: contradicts --kv-cache-memory; give one");
  }
  if (!kv_cache_memory_.empty())
    o.kv_cache_memory_bytes = parse_bytes("--kv-cache-memory", kv_cache_memory_);
  if (kv_cache_space_gib_ > 0)
    o.kv_cache_memory_bytes = static_cast<int64_t>(kv_cache_space_gib_ * 0x1p30);
  if (!swap_space_.empty()) o.swap_space_bytes = parse_bytes("--swap-space", swap_space_);
  if (!max_model_len_.empty()) o.max_model_len = parse_tokens("--max-model-len", max_model_len_);
  CompressionOptions& c = o.compression;
  c.score_reduce = parsed("--score-reduce", parse_score_reduce(score_reduce_));
  c.pooling = parsed("--pooling", parse_pooling(pooling_));
  c.redundancy = parsed("--redundancy", parse_redundancy(redundancy_));
  c.combine = parsed("--combine", parse_combine(combine_));
  o.scheduling = parsed("--scheduling", parse_scheduling(scheduling_));
  o.scheduling_policy = parsed("--scheduling-policy", parse_scheduling_policy(scheduling_policy_));
  if (score_weight_ != -1) c.score_weight = score_weight_;
  if (protect_newest_ != -1) c.protect_newest = protect_newest_;
  if (use_attention_sink_) c.sink_tokens = std::max(c.sink_tokens, 4);
  std::vector<EngineOptions> grid;
  bool full = false;
  for (const std::string& budget : split_list(kv_budget_)) {
    o.compression.kv_budget = parse_budget("--kv-budget", budget);
    for (const std::string& policy : split_list(kv_policy_)) {
      o.compression.kv_policy = parsed("--kv-policy", parse_kv_policy(policy));
      if (o.compression.capped() || !std::exchange(full, true)) grid.push_back(o);
    }
  }
  return grid;
}

LogLevel EngineFlags::log_level() const { return parse_log_level(log_level_); }

std::unique_ptr<Engine> EngineFlags::create_engine(EngineOptions o) const {
  const LogLevel threshold = log_level();
  o.log = [threshold](const std::string& level, const std::string& line) {
    log_line(threshold, level, line);
  };
  auto bar = std::make_shared<ProgressBar>("Loading");
  o.progress = [bar](const std::string& what, int64_t done, int64_t total) {
    bar->update(what, done, total);
  };
  auto engine = value_or_fail(Engine::create(o));
  bar->finish();
  return engine;
}

}  // namespace zipage::cli
