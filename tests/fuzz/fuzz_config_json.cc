// Any bytes are a config.json, with usable RoPE, or one Error.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/config.h"
#include "weights/json.h"

namespace {

void check_rope(const zipage::ModelConfig& config) {
  for (const double frequency : zipage::rope_frequencies(config, config.max_context_tokens())) {
    ZIPAGE_CHECK(std::isfinite(frequency));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check_rope(zipage::parse_model_config(zipage::JsonValue::parse(text, "x")));
  } catch (const zipage::Error&) {
  }
  return 0;
}
