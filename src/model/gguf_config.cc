#include "model/gguf_config.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "model/families/family.h"
#include "model/families/tensor_names.h"
#include "tensor/dequantize.h"

namespace zipage {
namespace {

constexpr int64_t kMaxWidth = 1 << 22;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

// The keys "ARCH.name" of one file.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  int32_t size(const char* name, int64_t max) const {
    return static_cast<int32_t>(file_.get_int(key(name), 1, max));
  }
  std::optional<int64_t> find_int(const char* name, int64_t max) const {
    return file_.find_int(key(name), 0, max);
  }
  int64_t get_int(const char* name, int64_t min, int64_t max) const {
    return file_.get_int(key(name), min, max);
  }
  double number(const char* name, double otherwise, double min, double max) const {
    return file_.find_double(key(name), min, max).value_or(otherwise);
  }
  std::string text(const char* name) const {
    return std::string(file_.find_string(key(name)).value_or("none"));
  }
  bool has(const char* name) const { return file_.metadata().contains(key(name)); }
  std::string key(const char* name) const { return fmt::format("{}.{}", prefix_, name); }

 private:
  const GgufFile& file_;
  std::string_view prefix_;
};

void read_scaling(const GgufFile& file, const ArchitectureKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  const std::string type = keys.text("rope.scaling.type");
  if (type == "none") {
    // Files of 2023 have this key alone.
    rope.factor = keys.number("rope.scale_linear", 1.0, 1e-3, 1e6);
    if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
    return;
  }
  if (type != "linear" && type != "yarn") {
    fail(StatusCode::kUnimplemented,
         "{}: key '{}' is '{}', which is not supported; supported: none, linear, yarn", file.path(),
         keys.key("rope.scaling.type"), type);
  }
  rope.factor = keys.number("rope.scaling.factor", 1.0, 1e-3, 1e6);
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return;
  }
  rope.scaling = RopeScaling::kYarn;
  rope.original_max_position_embeddings =
      keys.find_int("rope.scaling.original_context_length", kMaxPositions)
          .value_or(config.max_position_embeddings);
  if (rope.original_max_position_embeddings < 1) {
    fail(StatusCode::kDataLoss, "{}: key '{}' is 0; expected at least 1", file.path(),
         keys.key("rope.scaling.original_context_length"));
  }
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6);
  const double attn_factor = keys.number("rope.scaling.attn_factor", 1.0, 1e-3, 1e3);
  rope.attention_factor = keys.number("rope.scaling.yarn_attn_factor", attn_factor, 1e-3, 1e3);
  if (rope.factor > 1.0) rope.attention_factor *= 0.1 * std::log(rope.factor) + 1.0;
}

void read_rope(const GgufSource& source, const ArchitectureKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = keys.number("rope.freq_base", 10000.0, 1.0 + 1e-6, 1e15);
  rope.rotary_dim = static_cast<int32_t>(
      keys.find_int("rope.dimension_count", kMaxWidth).value_or(config.head_dim));
  read_scaling(source.file(), keys, config);
  // Llama 3 scaling comes as a divisor a frequency.
  if (!source.contains("rope_freqs.weight")) return;
  const HostTensor& divisors = source.get("rope_freqs.weight", {rope.rotary_dim / 2});
  rope.frequency_divisors.resize(static_cast<size_t>(rope.rotary_dim / 2));
  dequantize(divisors, rope.frequency_divisors);
  for (const float divisor : rope.frequency_divisors) {
    if (!(divisor > 0.0f && std::isfinite(divisor))) {
      fail(StatusCode::kDataLoss,
           "{}: tensor 'rope_freqs.weight' holds {}; expected positive numbers", source.path(),
           divisor);
    }
  }
}

void read_head_sizes(const GgufFile& file, const ArchitectureKeys& keys, ModelConfig& config) {
  config.num_q_heads = keys.size("attention.head_count", kMaxHeads);
  config.num_kv_heads = keys.has("attention.head_count_kv")
                            ? keys.size("attention.head_count_kv", kMaxHeads)
                            : config.num_q_heads;
  if (keys.has("attention.key_length")) {
    config.head_dim = keys.size("attention.key_length", kMaxHeads);
    const int32_t value_dim = keys.has("attention.value_length")
                                  ? keys.size("attention.value_length", kMaxHeads)
                                  : config.head_dim;
    if (value_dim == config.head_dim) return;
    fail(StatusCode::kUnimplemented, "{}: key '{}' is {} and '{}' is {}; supported: equal lengths",
         file.path(), keys.key("attention.key_length"), config.head_dim,
         keys.key("attention.value_length"), value_dim);
  }
  if (config.hidden_size % config.num_q_heads != 0) {
    fail(StatusCode::kDataLoss, "{}: key '{}' is {}; expected a multiple of the {} heads",
         file.path(), keys.key("embedding_length"), config.hidden_size, config.num_q_heads);
  }
  config.head_dim = config.hidden_size / config.num_q_heads;
}

// Rows of the embedding: the key vocab_size is optional.
void read_embedding(const GgufSource& source, const ArchitectureKeys& keys, ModelConfig& config) {
  const std::string name = tensor_name(WeightNaming::kGguf, TensorRole::kEmbedding);
  const HostTensor* embedding = source.peek(name);
  if (embedding == nullptr) {
    fail(StatusCode::kNotFound, "{}: tensor '{}' is missing", source.path(), name);
  }
  config.vocab_size = static_cast<int32_t>(
      std::min<int64_t>(embedding->shape.front(), std::numeric_limits<int32_t>::max()));
  if (keys.has("vocab_size")) config.vocab_size = keys.size("vocab_size", 1 << 26);
  config.dtype = is_packed(embedding->dtype) ? DType::kF16 : embedding->dtype;
}

void refuse_other_models(const GgufFile& file,
                         const ArchitectureKeys& keys,
                         const ModelConfig& config) {
  if (const auto experts = keys.find_int("expert_count", kMaxHeads); experts.value_or(0) > 0) {
    fail(StatusCode::kUnimplemented, "{}: key '{}' is {}: mixtures of experts are not supported",
         file.path(), keys.key("expert_count"), *experts);
  }
  const auto window = keys.find_int("attention.sliding_window", GgufFile::kMaxInt);
  if (window.value_or(0) > 0 && *window < config.max_position_embeddings) {
    fail(StatusCode::kUnimplemented,
         "{}: key '{}' is {}: layers that attend to a sliding window are not supported",
         file.path(), keys.key("attention.sliding_window"), *window);
  }
}

std::optional<int32_t> token_id(const GgufFile& file, std::string_view key) {
  const auto id = file.find_int(key, 0, std::numeric_limits<uint32_t>::max());
  // 2^32 - 1 stands for none.
  if (!id || *id > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*id);
}

// Every token that ends a turn: Llama 3 names <|eot_id|> apart from the end of the text.
std::vector<int32_t> end_ids(const GgufFile& file) {
  std::vector<int32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = token_id(file, key);
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

ModelConfig parse_gguf_config(const GgufSource& source) {
  const GgufFile& file = source.file();
  const std::string_view architecture = file.get_string("general.architecture");
  const ModelFamily* family = find_gguf_family(architecture);
  if (family == nullptr) {
    fail(StatusCode::kUnimplemented, "{}: architecture '{}' is not supported; supported: {}",
         file.path(), architecture, supported_gguf_architectures());
  }
  const ArchitectureKeys keys(file, architecture);
  ModelConfig config;
  config.architecture = family->architecture;
  config.model_type = family->model_type;
  config.hidden_size = keys.size("embedding_length", kMaxWidth);
  config.intermediate_size = keys.size("feed_forward_length", kMaxWidth);
  config.num_layers = keys.size("block_count", 4096);
  config.max_position_embeddings = keys.get_int("context_length", 1, kMaxPositions);
  config.rms_norm_eps = keys.number("attention.layer_norm_rms_epsilon", 1e-6, 0.0, 1.0);
  refuse_other_models(file, keys, config);
  read_head_sizes(file, keys, config);
  read_embedding(source, keys, config);
  read_rope(source, keys, config);
  const auto has = [&](TensorRole role) {
    return source.contains(tensor_name(WeightNaming::kGguf, role, 0));
  };
  config.tie_word_embeddings = !has(TensorRole::kLmHead);
  config.attention_bias = has(TensorRole::kQBias);
  config.output_bias = has(TensorRole::kOBias);
  config.mlp_bias = has(TensorRole::kGateBias);
  config.interleaved_qk = family->gguf_interleaved_qk;
  family->set_gguf(config);
  config.eos_token_ids = end_ids(file);
  config.bos_token_id = token_id(file, "tokenizer.ggml.bos_token_id");
  check_model_config(config, file.path());
  return config;
}

GenerationConfig parse_gguf_generation_config(const GgufFile& file) {
  GenerationConfig config;
  config.eos_token_ids = end_ids(file);
  config.bos_token_id = token_id(file, "tokenizer.ggml.bos_token_id");
  config.pad_token_id = token_id(file, "tokenizer.ggml.padding_token_id");
  config.temperature = file.find_double("general.sampling.temp", 0.0, 1e3);
  if (const auto top_k = file.find_int("general.sampling.top_k", 0, 1 << 30)) {
    config.top_k = static_cast<int32_t>(*top_k);
  }
  config.top_p = file.find_double("general.sampling.top_p", 0.0, 1.0);
  config.min_p = file.find_double("general.sampling.min_p", 0.0, 1.0);
  config.repetition_penalty = file.find_double("general.sampling.penalty_repeat", 1e-3, 1e3);
  return config;
}

}  // namespace zipage
