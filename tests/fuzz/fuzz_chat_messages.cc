// Messages, tools and template arguments of any content render or throw Error. The input is three
// JSON texts with a zero byte between them; the first byte chooses the switches.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{%- for m in messages %}<|{{ m['role'] }}|>{% if m.content is string %}"
    "{{ m.content | trim }}{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{% endif %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined %}"
    "{{ enable_thinking }}{% endif %}{% endif %}";

std::string take_text(std::string_view& input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string text(input.substr(0, end));
  input.remove_prefix(std::min(end + 1, input.size()));
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const zipage::ChatTemplate chat_template(kTemplate, "fuzz", {{"bos_token", "<s>"}});
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  zipage::ChatOptions options;
  options.add_generation_prompt = (data[0] & 1) != 0;
  options.continue_final_message = (data[0] & 2) != 0;
  const std::string messages = take_text(input);
  options.tools = take_text(input);
  options.template_kwargs = take_text(input);
  try {
    chat_template.render(messages, options);
  } catch (const zipage::Error&) {
  }
  return 0;
}
