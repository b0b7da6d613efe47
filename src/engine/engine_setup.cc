#include "engine/engine_setup.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "backend/registry/registry.h"
#include "base/error.h"
#include "engine/end_tokens.h"
#include "engine/start_checks.h"
#include "kvcache/memory_plan.h"
#include "model/open_model.h"

namespace zipage {
namespace {

constexpr int32_t kMaxLogprobs = 20;
// Of a GPU: captured graphs and the workspace of products, allocated after the cache.
constexpr size_t kGraphsAndWorkspaceBytes = size_t{320} << 20;

// Biased ids of all rows of a step: a thousand a request unless there are very many.
int32_t bias_capacity(int32_t max_num_seqs) {
  return std::clamp(max_num_seqs, 1 << 6, 1 << 10) * (1 << 10);
}

DType parse_dtype(const char* flag, const std::string& text, DType automatic) {
  if (text == "auto") return automatic;
  if (text == "float32" || text == "float" || text == "f32") return DType::kF32;
  if (text == "bfloat16" || text == "bf16") return DType::kBF16;
  if (text == "float16" || text == "half" || text == "f16") return DType::kF16;
  fail_invalid("{}: '{}': expected auto, float32, bfloat16 or float16", flag, text);
}

int64_t count_parameters(const ModelConfig& c) {
  const int64_t q = int64_t{c.num_q_heads} * c.head_dim, kv = int64_t{c.num_kv_heads} * c.head_dim;
  const int64_t layer = c.hidden_size * (2 * q + 2 * kv + 3 * int64_t{c.intermediate_size} + 2) +
                        (c.qk_norm ? 2 * c.head_dim : 0);
  const int64_t vocab = int64_t{c.vocab_size} * c.hidden_size * (c.tie_word_embeddings ? 1 : 2);
  return layer * c.num_layers + vocab + c.hidden_size;
}

// What grows with the parts as they are built.
class Setup {
 public:
  Setup(const EngineOptions& options, std::unique_ptr<Backend> backend) : options_(options) {
    parts_.backend = std::move(backend);
  }

  EngineParts build() {
    check_options(options_);
    parts_.log = Logger([sink = options_.log](LogLevel level, std::string_view line) {
      constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
      if (sink) sink(kNames[static_cast<int>(level)], std::string(line));
    });
    if (!options_.kv_trace.empty())
      parts_.kv_trace = std::make_unique<KvTraceWriter>(options_.kv_trace);
    read_model_files();
    make_backend();
    resolve_lengths();
    check_heads(parts_.config, *parts_.backend, compression_.capped(), options_.model);
    make_decoder();
    make_cache();
    make_scheduler();
    describe();
    return std::move(parts_);
  }

 private:
  void read_model_files();
  void find_end_tokens();
  void make_backend();
  void resolve_lengths();
  void make_decoder();
  void make_cache();
  void make_scheduler();
  void describe();
  RunnerLimits runner_limits() const;
  size_t runner_bytes() const;
  void check_room_for_model() const;
  void check_room_for_cache(const MemoryPlan& plan, const KvCacheConfig& cache) const;
  int64_t kv_memory_bytes() const;
  SlotContents served_contents() const;

  EngineOptions options_;
  EngineParts parts_;
  std::unique_ptr<WeightSource> source_;
  CompressionOptions compression_;
  DType dtype_ = DType::kF32, kv_dtype_ = DType::kF32;
  int32_t max_blocks_per_seq_ = 0;  // N_max
  bool length_was_given_ = false;   // --max-model-len
  Backend::Limits limits_{};
  DecoderLimits decoder_limits_;
};

void Setup::read_model_files() {
  const std::string& path = options_.model;
  if (!std::filesystem::exists(path)) {
    fail(StatusCode::kNotFound,
         "{}: no such file or folder; expected a model folder or a GGUF file", path);
  }
  OpenedModel model = open_model(path, options_.load_format);
  parts_.config = std::move(model.config);
  parts_.generation = std::move(model.generation);
  source_ = std::move(model.weights);
  for (const std::string& warning : model.warnings) parts_.log.warning("{}", warning);
  const std::string& tokenizer = options_.tokenizer.empty() ? path : options_.tokenizer;
  auto loaded = Tokenizer::load(tokenizer);
  if (loaded.ok()) {
    parts_.tokenizer = std::move(loaded).value();
    for (const std::string& warning : parts_.tokenizer->warnings())
      parts_.log.warning("{}", warning);
  } else if (options_.load_format != "dummy") {
    throw Error(loaded.status().code(), loaded.status().message());
  }
  find_end_tokens();
}

void Setup::find_end_tokens() {
  EndTokens ends = collect_end_tokens(parts_.generation, parts_.config, parts_.tokenizer.get());
  for (const int32_t id : ends.out_of_range) {
    parts_.log.warning("end token {} is not below the vocab_size of {} and can never be drawn", id,
                       parts_.config.vocab_size);
  }
  if (!ends.ids.empty()) {
    parts_.log.info("answers end with {}", ends.description);
  } else if (parts_.tokenizer) {
    parts_.log.warning(
        "{}: no token ends an answer: neither the model's configuration nor its tokenizer names "
        "one; answers run to max_tokens unless a request gives stop or stop_token_ids",
        options_.model);
  }
  parts_.generation.eos_token_ids = std::move(ends.ids);
}

void Setup::make_backend() {
  dtype_ = parse_dtype("--dtype", options_.dtype,
                       parts_.config.dtype == DType::kF32 ? DType::kF32 : DType::kBF16);
  kv_dtype_ = parse_dtype("--kv-cache-dtype", options_.kv_cache_dtype, dtype_);
  BackendOptions backend;
  backend.num_threads = options_.num_threads;
  backend.dtype = dtype_;
  if (const char* isa = std::getenv("ZIPAGE_CPU_ISA")) backend.isa = isa;
  std::string why_no_gpu;
  if (!parts_.backend) parts_.backend = create_backend(options_.device, backend, &why_no_gpu);
  if (!why_no_gpu.empty()) parts_.log.warning("this runs on the CPU: {}", why_no_gpu);
}

void Setup::resolve_lengths() {
  EngineOptions& o = options_;
  auto resolved = o.compression.resolved(o.block_size);
  if (!resolved.ok()) throw Error(resolved.status().code(), resolved.status().message());
  compression_ = *resolved;
  if (compression_.capped())
    max_blocks_per_seq_ = static_cast<int32_t>(compression_.kv_budget / o.block_size + 1);
  const int64_t model_len = parts_.config.max_context_tokens();
  length_was_given_ = o.max_model_len > 0;
  if (!length_was_given_) o.max_model_len = model_len;
  if (o.max_model_len > model_len) {
    fail_invalid("--max-model-len: {} is more than the {} tokens that the model was made for",
                 o.max_model_len, model_len);
  }
  if (o.max_num_batched_tokens == 0) {
    o.max_num_batched_tokens =
        std::max(o.max_num_seqs, parts_.backend->traits().default_step_tokens);
  }
  if (o.max_num_batched_tokens < o.max_num_seqs) {
    fail_invalid(
        "--max-num-batched-tokens: {} is less than --max-num-seqs {}: a step could not decode them "
        "all",
        o.max_num_batched_tokens, o.max_num_seqs);
  }
  const ModelConfig& c = parts_.config;
  limits_ = {.max_tokens = o.max_num_batched_tokens,
             .max_rows = o.max_num_seqs,
             .max_kv_len = static_cast<int32_t>(o.max_model_len),
             .num_q_heads = c.num_q_heads,
             .num_kv_heads = c.num_kv_heads,
             .head_dim = c.head_dim,
             .block_size = o.block_size,
             .window_size = compression_.window_size,
             .vocab = c.vocab_size,
             .max_jobs = o.max_num_seqs,
             .layer_stride = compression_.layer_stride,
             .score_capacity = max_blocks_per_seq_ * o.block_size};
}

RunnerLimits Setup::runner_limits() const {
  const EngineOptions& o = options_;
  return {.batch = {.max_tokens = o.max_num_batched_tokens,
                    .max_rows = o.max_num_seqs,
                    .max_logits = o.max_num_seqs,
                    .max_blocks_per_row =
                        static_cast<int32_t>((o.max_model_len + o.block_size - 1) / o.block_size),
                    .max_bias = bias_capacity(o.max_num_seqs),
                    .block_size = o.block_size,
                    .window_size = compression_.window_size},
          .max_logprobs = std::min(kMaxLogprobs, parts_.config.vocab_size),
          .sample_workspace_bytes = parts_.backend->sample_workspace_bytes(limits_),
          .max_kv_len = limits_.max_kv_len};
}

// On a GPU: what is allocated after the cache, besides compression scratch.
size_t Setup::runner_bytes() const {
  return ModelRunner::bytes(runner_limits(), parts_.config.vocab_size) + kGraphsAndWorkspaceBytes;
}

// Before anything is loaded.
void Setup::check_room_for_model() const {
  if (!parts_.backend->traits().has_own_memory) return;
  const DeviceInfo device = parts_.backend->info();
  const DType dtype = parts_.backend->activation_dtype();
  std::vector<MemoryPart> parts = {
      {"weights", static_cast<size_t>(dtype_bytes(dtype, count_parameters(parts_.config)))},
      {"activations", Decoder::activation_bytes(parts_.config, dtype, decoder_limits_)},
      {"sampling, graphs and workspaces", runner_bytes()}};
  const double gib = static_cast<double>(device.total_bytes) / 0x1p30;
  if (options_.kv_cache_memory_bytes > 0) {
    parts.push_back(
        {"KV cache (--kv-cache-memory)", static_cast<size_t>(options_.kv_cache_memory_bytes)});
    return check_memory(parts, device.free_bytes,
                        fmt::format("free of {:.2f} GiB on {}", gib, device.name));
  }
  const double allowed = options_.gpu_memory_utilization * static_cast<double>(device.total_bytes) -
                         static_cast<double>(device.total_bytes - device.free_bytes);
  check_memory(parts, static_cast<size_t>(std::max(allowed, 0.0)),
               fmt::format("--gpu-memory-utilization {} of {:.2f} GiB on {}, less what others use",
                           options_.gpu_memory_utilization, gib, device.name));
}

// With a number of blocks that the user gives, or beside others that have taken memory since.
void Setup::check_room_for_cache(const MemoryPlan& plan, const KvCacheConfig& cache) const {
  const DeviceInfo device = parts_.backend->info();
  if (!parts_.backend->traits().has_own_memory) {
    const MemoryPart parts[] = {{"KV cache", plan.total_bytes}, {"swap space", plan.host_bytes}};
    return check_memory(parts, device.free_bytes,
                        "free beside the weights; --kv-cache-memory, "
                        "--num-gpu-blocks-override and --swap-space decide about it");
  }
  const MemoryPart parts[] = {{fmt::format("{} KV blocks", plan.num_blocks),
                               static_cast<size_t>(plan.num_blocks) * kv_block_bytes(cache)},
                              {fmt::format("{} compression slots", plan.num_slots),
                               static_cast<size_t>(plan.num_slots) * kv_slot_bytes(cache)},
                              {"compression scratch", plan.reserved_bytes},
                              {"sampling, graphs and workspaces", runner_bytes()}};
  check_memory(
      parts, device.free_bytes,
      fmt::format("free beside {:.2f} GiB of weights and activations; --num-gpu-blocks-override, "
                  "--kv-cache-memory and --max-num-seqs decide about it",
                  static_cast<double>(parts_.decoder->weight_bytes() +
                                      Decoder::activation_bytes(parts_.config,
                                                                parts_.backend->activation_dtype(),
                                                                decoder_limits_)) /
                      0x1p30));
}

void Setup::make_decoder() {
  const ModelConfig& c = parts_.config;
  decoder_limits_ = {
      .max_tokens = options_.max_num_batched_tokens,
      .max_logits = options_.max_num_seqs,
      .max_positions = static_cast<int32_t>(options_.max_model_len),
      .attention_workspace_bytes = parts_.backend->attention_workspace_bytes(limits_)};
  check_room_for_model();
  const auto progress = [&](int done, int total) {
    if (options_.progress) options_.progress("weights", done, total);
  };
  ModelWeights weights = load_model_weights(*source_, c);
  if (!weights.unused.empty()) {
    parts_.log.warning("{}: {} tensors have no role in a {} and are left out, '{}' first",
                       options_.model, weights.unused.size(), c.architecture,
                       weights.unused.front());
  }
  parts_.decoder =
      std::make_unique<Decoder>(*parts_.backend, c, std::move(weights), decoder_limits_, progress);
  source_.reset();  // the backend has its own copy
}

// What the cache may take.
int64_t Setup::kv_memory_bytes() const {
  if (options_.kv_cache_memory_bytes > 0) return options_.kv_cache_memory_bytes;
  const DeviceTraits traits = parts_.backend->traits();
  const DeviceInfo device = parts_.backend->info();
  if (!traits.has_own_memory) {
    const double share = traits.default_kv_cache_share * static_cast<double>(device.free_bytes);
    if (options_.num_gpu_blocks_override == 0) {
      parts_.log.info("KV cache memory: {:.2f} GiB, {:.0f} % of what is free (--kv-cache-memory)",
                      share / 0x1p30, 100 * traits.default_kv_cache_share);
    }
    return static_cast<int64_t>(share);
  }
  // Weights and activations are allocated by now, so that free_bytes has them taken off.
  const double allowed = options_.gpu_memory_utilization * static_cast<double>(device.total_bytes);
  const double used = static_cast<double>(device.total_bytes - device.free_bytes + runner_bytes());
  return std::max<int64_t>(0, static_cast<int64_t>(allowed - used));
}

// Any request may ask for any policy, so slots hold what all of them need.
SlotContents Setup::served_contents() const {
  SlotContents contents;
  if (!compression_.capped()) return contents;
  for (const KvPolicyTraits& policy : kKvPolicies) {
    contents |= slot_contents(options_.compression.for_policy(policy.policy));
  }
  if (parts_.kv_trace) contents.positions = true;
  return contents;
}

void Setup::make_cache() {
  const ModelConfig& c = parts_.config;
  const EngineOptions& o = options_;
  Backend& backend = *parts_.backend;
  const KvCacheConfig cache{.dtype = kv_dtype_,
                            .query_dtype = backend.activation_dtype(),
                            .num_layers = c.num_layers,
                            .num_q_heads = c.num_q_heads,
                            .num_kv_heads = c.num_kv_heads,
                            .head_dim = c.head_dim,
                            .block_size = o.block_size,
                            .window_size = compression_.window_size,
                            .max_model_len = o.max_model_len,
                            .max_num_seqs = o.max_num_seqs,
                            .max_blocks_per_seq = max_blocks_per_seq_,
                            .contents = served_contents(),
                            .num_blocks_override = o.num_gpu_blocks_override,
                            .swap_space_bytes = static_cast<size_t>(o.swap_space_bytes)};
  const CompressionModel model{.num_layers = c.num_layers,
                               .num_q_heads = c.num_q_heads,
                               .num_kv_heads = c.num_kv_heads,
                               .head_dim = c.head_dim,
                               .rotary_dim = c.rope.rotary_dim,
                               .attention_scale = c.attention_scale(),
                               .rope_cos_sin = parts_.decoder->rope_cos_sin()};
  const RunnerLimits runner = runner_limits();
  // No row is longer than the pool: scratch for longer ones would only take blocks away.
  const int64_t kv_memory = kv_memory_bytes();
  const int64_t most_blocks = o.num_gpu_blocks_override > 0
                                  ? o.num_gpu_blocks_override
                                  : kv_memory / static_cast<int64_t>(kv_block_bytes(cache));
  const int64_t longest_in_pool =
      std::min(o.max_model_len, std::max<int64_t>(most_blocks, 1) * o.block_size);
  const CompressorLimits compressor{.block_size = o.block_size,
                                    .max_blocks_per_seq = max_blocks_per_seq_,
                                    .max_model_len = longest_in_pool,
                                    .max_launch_jobs = o.max_num_seqs,
                                    .max_batch_jobs = backend.traits().compression_batch_jobs,
                                    .trace = parts_.kv_trace != nullptr};
  const size_t scratch =
      compression_.capped()
          ? Compressor::memory(backend, model, compression_, compressor).device_bytes
          : 0;
  // A GPU's compression works in tens of megabytes, which would leave little of a small cache: a
  // size that the user names is that of blocks and slots there, and scratch comes on top. On a CPU
  // it is part of it.
  const size_t extra_scratch =
      o.kv_cache_memory_bytes > 0 && backend.traits().has_own_memory ? scratch : 0;
  const MemoryPlan plan =
      plan_memory(cache, static_cast<size_t>(kv_memory) + extra_scratch, scratch);
  // Without a cap a request may grow to the model's length; unless the user insists on one, no
  // length is promised that the pool cannot hold.
  const int64_t pool_tokens = int64_t{plan.num_blocks} * o.block_size;
  if (!compression_.capped() && options_.max_model_len > pool_tokens) {
    if (length_was_given_) {
      fail(StatusCode::kResourceExhausted,
           "--max-model-len: {} tokens need more KV memory than there is: it holds {} tokens; give "
           "more with "
           "--kv-cache-memory, or a cap with --kv-budget",
           o.max_model_len, pool_tokens);
    }
    options_.max_model_len = pool_tokens;
    parts_.log.warning("max_model_len: {} tokens, the whole of the KV memory", pool_tokens);
  }
  check_room_for_cache(plan, cache);
  parts_.cache = std::make_unique<KvCache>(backend, cache, plan);
  if (compression_.capped()) {
    parts_.compressor = std::make_unique<Compressor>(backend, parts_.cache->view(), model,
                                                     o.compression, compressor);
  } else if (parts_.kv_trace) {
    parts_.log.warning("--kv-trace: with --kv-budget full nothing is compressed; {} stays empty",
                       o.kv_trace);
  }
  parts_.runner = std::make_unique<ModelRunner>(backend, *parts_.decoder, *parts_.cache,
                                                parts_.compressor.get(), c.vocab_size, runner);
  if (!o.enforce_eager) {
    const size_t free_before = backend.info().free_bytes;
    parts_.runner->capture_graphs([&](int done, int total) {
      if (options_.progress) options_.progress("CUDA graphs", done, total);
    });
    if (const size_t free_after = backend.info().free_bytes; free_after < free_before) {
      parts_.log.debug("CUDA graphs take {:.1f} MiB",
                       static_cast<double>(free_before - free_after) / 0x1p20);
    }
  }
  parts_.max_bias = bias_capacity(o.max_num_seqs) / o.max_num_seqs;
  parts_.max_logprobs = runner.max_logprobs;
  parts_.info.scratch_bytes = static_cast<int64_t>(scratch);
  parts_.info.plan_line = plan.describe(cache, compression_.kv_policy);
}

void Setup::make_scheduler() {
  const MemoryPlan& plan = parts_.cache->plan();
  SchedulerOptions s;
  s.scheduling = options_.scheduling;
  s.num_blocks = plan.num_blocks;
  s.block_size = options_.block_size;
  s.max_query_slots = plan.num_slots;
  s.max_num_seqs = options_.max_num_seqs;
  s.max_num_batched_tokens = options_.max_num_batched_tokens;
  s.max_model_len = options_.max_model_len;
  s.max_blocks_per_seq = max_blocks_per_seq_;
  s.num_host_blocks = plan.num_host_blocks;
  s.num_host_slots = plan.num_host_slots;
  s.enable_prefix_caching = options_.enable_prefix_caching;
  s.compression = options_.compression;
  parts_.scheduler = Scheduler::create(s);
}

void Setup::describe() {
  const MemoryPlan& plan = parts_.cache->plan();
  const DeviceInfo device = parts_.backend->info();
  const ModelConfig& c = parts_.config;
  EngineInfo& info = parts_.info;
  info.model_name = std::filesystem::path(options_.model).lexically_normal().filename().string();
  if (info.model_name.empty()) {
    info.model_name =
        std::filesystem::path(options_.model).lexically_normal().parent_path().filename().string();
  }
  info.architecture = c.architecture;
  info.device = device.name;
  info.device_kind = device.kind;
  info.dtype = to_string(dtype_);
  info.kv_cache_dtype = to_string(kv_dtype_);
  info.num_parameters = count_parameters(c);
  info.weight_bytes = static_cast<int64_t>(parts_.decoder->weight_bytes());
  info.step_weight_bytes = static_cast<int64_t>(parts_.decoder->step_weight_bytes());
  info.vocab_size = c.vocab_size;
  info.max_model_len = options_.max_model_len;
  info.num_layers = c.num_layers;
  info.num_kv_heads = c.num_kv_heads;
  info.head_dim = c.head_dim;
  info.block_size = options_.block_size;
  info.num_blocks = plan.num_blocks;
  info.max_query_slots = plan.num_slots;
  info.max_blocks_per_seq = max_blocks_per_seq_;
  info.kv_bytes = static_cast<int64_t>(plan.num_blocks * plan.block_bytes);
  info.planned_bytes = static_cast<int64_t>(plan.total_bytes);
  info.compression = compression_;
  parts_.log.info("model: {} ({}), {:.1f} M parameters, {:.1f} MiB of weights, {} on {}",
                  info.model_name, info.architecture,
                  static_cast<double>(info.num_parameters) / 1e6,
                  static_cast<double>(info.weight_bytes) / 0x1p20, info.dtype, info.device);
  parts_.log.info("{}", info.plan_line);
}

}  // namespace

EngineParts build_engine_parts(const EngineOptions& options, std::unique_ptr<Backend> backend) {
  return Setup(options, std::move(backend)).build();
}

}  // namespace zipage
