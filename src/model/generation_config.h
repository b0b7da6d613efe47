// generation_config.json: how a model's makers want it sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zipage {

class JsonValue;

// A member without a value was not in the file.
struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;  // 0: greedy
  std::optional<int32_t> top_k;       // 0: all
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// The ids of a field that holds one or a list of them; none when it is absent. -1 stands for none.
std::vector<int32_t> read_token_ids(const JsonValue& json, std::string_view key);
// Throws kDataLoss when a field has a wrong type or is out of range.
GenerationConfig parse_generation_config(const JsonValue& json);
// From folder/generation_config.json; empty when there is no such file.
GenerationConfig read_generation_config(const std::string& folder);

}  // namespace zipage
