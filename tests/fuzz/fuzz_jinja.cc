// A template of any content renders or throws Error, within its limits.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using zipage::jinja::Value;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!zipage::is_valid_utf8(input)) return 0;
  zipage::jinja::DictBuilder message;
  message.set("role", Value::string("user"));
  message.set("content", Value::string("hello \xC3\xA9"));
  zipage::jinja::DictBuilder variables;
  variables.set("messages", Value::list({message.finish()}));
  variables.set("add_generation_prompt", Value::boolean(true));
  zipage::jinja::Limits limits;
  limits.max_steps = 20'000;
  limits.max_bytes = 4 << 20;
  try {
    zipage::jinja::Template(input).render(variables.finish(), 1'700'000'000, limits);
  } catch (const zipage::Error&) {
  }
  return 0;
}
