#include "model/generation_config.h"

#include <limits>

#include "base/mmap.h"
#include "weights/json.h"

namespace zipage {
namespace {

constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

// -1 stands for none in some files.
std::optional<int32_t> token_id(const JsonValue& field) {
  const int64_t id = field.as_int(-1, kMaxTokenId);
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

std::optional<double> number(const JsonValue& json, std::string_view key, double min, double max) {
  const auto field = json.find(key);
  return field ? std::optional(field->as_double(min, max)) : std::nullopt;
}

}  // namespace

std::vector<int32_t> read_token_ids(const JsonValue& json, std::string_view key) {
  std::vector<int32_t> ids;
  const auto field = json.find(key);
  if (!field) return ids;
  const auto add = [&](const JsonValue& one) {
    if (const auto id = token_id(one)) ids.push_back(*id);
  };
  if (field->is_array()) {
    for (const JsonValue& one : field->elements()) add(one);
  } else {
    add(*field);
  }
  return ids;
}

GenerationConfig parse_generation_config(const JsonValue& json) {
  GenerationConfig config;
  config.eos_token_ids = read_token_ids(json, "eos_token_id");
  // Some files list several; the first one counts.
  if (const auto bos = read_token_ids(json, "bos_token_id"); !bos.empty()) {
    config.bos_token_id = bos.front();
  }
  if (const auto pad = json.find("pad_token_id")) config.pad_token_id = token_id(*pad);
  if (const auto sample = json.find("do_sample")) config.do_sample = sample->as_bool();
  config.temperature = number(json, "temperature", 0.0, 1e3);
  if (const auto top_k = json.find("top_k")) {
    config.top_k = static_cast<int32_t>(top_k->as_int(0, kMaxTokenId));
  }
  config.top_p = number(json, "top_p", 0.0, 1.0);
  config.min_p = number(json, "min_p", 0.0, 1.0);
  config.typical_p = number(json, "typical_p", 0.0, 1.0);
  config.repetition_penalty = number(json, "repetition_penalty", 1e-3, 1e3);
  if (const auto tokens = json.find("max_new_tokens")) {
    config.max_new_tokens = tokens->as_int(1, std::numeric_limits<int64_t>::max());
  }
  return config;
}

GenerationConfig read_generation_config(const std::string& folder) {
  const std::string path = join_path(folder, "generation_config.json");
  if (!is_regular_file(path)) return {};
  return parse_generation_config(JsonValue::read(path));
}

}  // namespace zipage
