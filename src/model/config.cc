#include "model/config.h"

#include <algorithm>

#include "base/error.h"
#include "base/mmap.h"
#include "model/families/family.h"
#include "model/generation_config.h"
#include "weights/json.h"

namespace zipage {
namespace {

constexpr int64_t kMaxPositions = int64_t{1} << 30;

int32_t read_size(const JsonValue& json, std::string_view key, int32_t max) {
  return static_cast<int32_t>(json.at(key).as_int(1, max));
}

const ModelFamily& read_family(const JsonValue& json) {
  if (!json.is_object()) json.fail_expected("an object");
  if (const auto architectures = json.find("architectures")) {
    for (const JsonValue& name : architectures->elements()) {
      if (const ModelFamily* family = find_family(name.as_string())) return *family;
    }
    fail(StatusCode::kUnimplemented, "{}: architecture {} is not supported; supported: {}",
         json.file(), architectures->text(), supported_architectures());
  }
  const JsonValue type = json.at("model_type");
  for (const ModelFamily* family : model_families()) {
    if (family->model_type == type.as_string()) return *family;
  }
  fail(StatusCode::kUnimplemented, "{}: model_type {} is not supported; supported: {}", json.file(),
       type.text(), supported_architectures());
}

double read_double(
    const JsonValue& json, std::string_view key, double otherwise, double min, double max) {
  const auto field = json.find(key);
  return field ? field->as_double(min, max) : otherwise;
}

// transformers: 0.1 mscale ln(factor) + 1
double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(const JsonValue& scaling, const ModelConfig& config, RopeConfig& rope) {
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = read_double(
      scaling, "factor", static_cast<double>(config.max_position_embeddings) / original, 1e-3, 1e6);
  // 0 asks for the default, as null does.
  const auto beta = [&](std::string_view key, double otherwise) {
    const double value = read_double(scaling, key, otherwise, 0.0, 1e6);
    return value == 0.0 ? otherwise : value;
  };
  rope.beta_fast = beta("beta_fast", 32.0);
  rope.beta_slow = beta("beta_slow", 1.0);
  if (rope.beta_fast < rope.beta_slow) {
    scaling.at("beta_fast").fail_expected(fmt::format("at least beta_slow, {}", rope.beta_slow));
  }
  const auto truncate = scaling.find("truncate");
  rope.truncate = !truncate || truncate->as_bool();
  const double mscale = read_double(scaling, "mscale", 0.0, 0.0, 1e3);
  const double mscale_all_dim = read_double(scaling, "mscale_all_dim", 0.0, 0.0, 1e3);
  const double inferred =
      mscale != 0.0 && mscale_all_dim != 0.0
          ? yarn_magnitude(rope.factor, mscale) / yarn_magnitude(rope.factor, mscale_all_dim)
          : yarn_magnitude(rope.factor, 1.0);
  rope.attention_factor = read_double(scaling, "attention_factor", inferred, 1e-3, 1e3);
}

void read_scaling(const JsonValue& json,
                  const JsonValue& scaling,
                  const ModelConfig& config,
                  RopeConfig& rope) {
  auto type = scaling.find("rope_type");
  if (!type) type = scaling.find("type");
  const std::string name = type ? type->as_string() : "default";
  if (name == "default") return;
  auto original = json.find("original_max_position_embeddings");
  if (!original) original = scaling.find("original_max_position_embeddings");
  rope.original_max_position_embeddings =
      original ? original->as_int(1, kMaxPositions) : config.max_position_embeddings;
  if (name == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    read_yarn(scaling, config, rope);
    return;
  }
  if (name == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (name == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
    if (rope.rotary_dim <= 2) type->fail_expected("another type: rotary_dim is 2");
  } else if (name == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = scaling.at("low_freq_factor").as_double(1e-6, 1e6);
    rope.high_freq_factor = scaling.at("high_freq_factor").as_double(1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      scaling.at("high_freq_factor")
          .fail_expected(fmt::format("more than low_freq_factor, {}", rope.low_freq_factor));
    }
  } else {
    fail(StatusCode::kUnimplemented,
         "{}: field '{}' is '{}', which is not supported; supported: default, linear, dynamic, "
         "llama3, yarn",
         json.file(), type->field(), name);
  }
  rope.factor = scaling.at("factor").as_double(1e-3, 1e6);
}

void read_rope(const JsonValue& json, ModelConfig& config) {
  // rope_scaling, or rope_parameters with theta inside (transformers 5).
  auto parameters = json.find("rope_scaling");
  if (!parameters) parameters = json.find("rope_parameters");
  if (parameters) {
    for (const auto& [key, value] : parameters->members()) {
      if (!value.is_object()) continue;
      fail(StatusCode::kUnimplemented,
           "{}: field '{}' is {}: RoPE that differs by layer is not supported", json.file(),
           value.field(), value.text());
    }
  }
  const auto read = [&](std::string_view key, double otherwise, double min, double max) {
    if (parameters && parameters->find(key)) return parameters->at(key).as_double(min, max);
    return read_double(json, key, otherwise, min, max);
  };
  RopeConfig& rope = config.rope;
  rope.theta = read("rope_theta", 10000.0, 1.0 + 1e-6, 1e15);
  const double share = read("partial_rotary_factor", 1.0, 0.0, 1.0);
  rope.rotary_dim = static_cast<int32_t>(config.head_dim * share);
  if (parameters) read_scaling(json, *parameters, config, rope);
}

void read_head_sizes(const JsonValue& json, const ModelFamily& family, ModelConfig& config) {
  constexpr int32_t kMaxHeads = 4096;
  constexpr int32_t kMaxHeadDim = 4096;
  config.num_q_heads = read_size(json, "num_attention_heads", kMaxHeads);
  config.num_kv_heads = config.num_q_heads;
  if (!family.kv_heads_optional || json.find("num_key_value_heads")) {
    config.num_kv_heads = read_size(json, "num_key_value_heads", kMaxHeads);
  }
  if (json.find("head_dim")) {
    config.head_dim = read_size(json, "head_dim", kMaxHeadDim);
  } else if (family.default_head_dim > 0) {
    config.head_dim = family.default_head_dim;
  } else if (config.hidden_size % config.num_q_heads == 0) {
    config.head_dim = config.hidden_size / config.num_q_heads;
  } else {
    json.at("hidden_size")
        .fail_expected(fmt::format("a multiple of num_attention_heads, {}", config.num_q_heads));
  }
}

DType read_dtype(const JsonValue& json) {
  auto field = json.find("dtype");
  if (!field) field = json.find("torch_dtype");
  if (!field) return DType::kF32;
  const std::string name = field->as_string();
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  if (name == "float32") return DType::kF32;
  field->fail_expected("bfloat16, float16 or float32");
}

void refuse_other_arithmetic(const JsonValue& json) {
  if (const auto activation = json.find("hidden_act")) {
    const std::string name = activation->as_string();
    if (name != "silu" && name != "swish") {
      fail(StatusCode::kUnimplemented, "{}: field 'hidden_act' is '{}'; supported: silu",
           json.file(), name);
    }
  }
  if (const auto quantization = json.find("quantization_config")) {
    const auto method = quantization->find("quant_method");
    fail(StatusCode::kUnimplemented,
         "{}: field 'quantization_config' has quant_method {}; supported: plain weights, or a GGUF "
         "file",
         json.file(), method ? method->text() : "none");
  }
}

}  // namespace

int64_t ModelConfig::max_context_tokens() const {
  const auto stretched = [&](int64_t tokens) {
    return static_cast<int64_t>(static_cast<double>(tokens) * std::max(rope.factor, 1.0));
  };
  switch (rope.scaling) {
    case RopeScaling::kLinear:
    case RopeScaling::kDynamic:
      return stretched(max_position_embeddings);
    case RopeScaling::kYarn:
      return std::max(max_position_embeddings, stretched(rope.original_max_position_embeddings));
    case RopeScaling::kNone:
    case RopeScaling::kLlama3:
      break;
  }
  return max_position_embeddings;
}

void check_model_config(const ModelConfig& c, const std::string& file) {
  if (c.num_q_heads % c.num_kv_heads != 0) {
    fail(StatusCode::kDataLoss, "{}: {} query heads over {} key-value heads; expected a multiple",
         file, c.num_q_heads, c.num_kv_heads);
  }
  if (c.head_dim % 2 != 0 || c.rope.rotary_dim % 2 != 0 || c.rope.rotary_dim < 2 ||
      c.rope.rotary_dim > c.head_dim) {
    fail(StatusCode::kDataLoss,
         "{}: RoPE turns {} of head_dim {}; expected even numbers, and from 2 to head_dim", file,
         c.rope.rotary_dim, c.head_dim);
  }
  for (const int32_t id : c.eos_token_ids) {
    if (id >= c.vocab_size) {
      fail(StatusCode::kDataLoss, "{}: eos_token_id is {}; vocab_size is {}", file, id,
           c.vocab_size);
    }
  }
}

ModelConfig parse_model_config(const JsonValue& json) {
  constexpr int32_t kMaxWidth = 1 << 22;
  const ModelFamily& family = read_family(json);
  ModelConfig config;
  config.architecture = family.architecture;
  config.model_type = family.model_type;
  refuse_other_arithmetic(json);
  config.hidden_size = read_size(json, "hidden_size", kMaxWidth);
  config.intermediate_size = read_size(json, "intermediate_size", kMaxWidth);
  config.num_layers = read_size(json, "num_hidden_layers", 4096);
  config.vocab_size = read_size(json, "vocab_size", 1 << 26);
  config.max_position_embeddings = json.at("max_position_embeddings").as_int(1, kMaxPositions);
  config.rms_norm_eps = read_double(json, "rms_norm_eps", 1e-6, 0.0, 1.0);
  read_head_sizes(json, family, config);
  read_rope(json, config);
  const auto tied = json.find("tie_word_embeddings");
  config.tie_word_embeddings = tied && tied->as_bool();
  config.eos_token_ids = read_token_ids(json, "eos_token_id");
  // Some files list several; the first one counts.
  if (const auto bos = read_token_ids(json, "bos_token_id"); !bos.empty()) {
    config.bos_token_id = bos.front();
  }
  config.dtype = read_dtype(json);
  family.read_json(json, config);
  check_model_config(config, json.file());
  return config;
}

ModelConfig read_model_config(const std::string& folder) {
  return parse_model_config(JsonValue::read(join_path(folder, "config.json")));
}

}  // namespace zipage
