#include "model/generation_config.h"

#include <limits>

#include "base/mmap.h"
#include "weights/json.h"

namespace zipage {
namespace {

constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

int32_t token_id(const JsonValue& field) {
  return static_cast<int32_t>(field.as_int(0, kMaxTokenId));
}

std::optional<double> number(const JsonValue& json, std::string_view key, double min, double max) {
  const auto field = json.find(key);
  return field ? std::optional(field->as_double(min, max)) : std::nullopt;
}

}  // namespace

GenerationConfig parse_generation_config(const JsonValue& json) {
  GenerationConfig config;
  if (const auto eos = json.find("eos_token_id")) {
    if (eos->is_array()) {
      for (const JsonValue& id : eos->elements()) config.eos_token_ids.push_back(token_id(id));
    } else {
      config.eos_token_ids.push_back(token_id(*eos));
    }
  }
  // Some files list several; the first one counts.
  if (const auto bos = json.find("bos_token_id"); bos && !bos->is_array()) {
    config.bos_token_id = token_id(*bos);
  } else if (bos && !bos->elements().empty()) {
    config.bos_token_id = token_id(bos->elements().front());
  }
  // -1 stands for none in some files.
  if (const auto pad = json.find("pad_token_id")) {
    const int64_t id = pad->as_int(-1, kMaxTokenId);
    if (id >= 0) config.pad_token_id = static_cast<int32_t>(id);
  }
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
