// Any bytes are a generation_config.json, every number in its range, or one Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/generation_config.h"
#include "weights/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto config = zipage::parse_generation_config(zipage::JsonValue::parse(text, "x"));
    for (const int32_t id : config.eos_token_ids) ZIPAGE_CHECK_GE(id, 0);
    for (const auto& fraction : {config.top_p, config.min_p, config.typical_p}) {
      ZIPAGE_CHECK(!fraction || (*fraction >= 0 && *fraction <= 1));
    }
    ZIPAGE_CHECK(!config.temperature || *config.temperature >= 0);
    ZIPAGE_CHECK(!config.max_new_tokens || *config.max_new_tokens > 0);
  } catch (const zipage::Error&) {
  }
  return 0;
}
