// A Jinja template, as Hugging Face sets Jinja up for chat templates: trim_blocks, lstrip_blocks,
// loop controls, generation tags, tojson, raise_exception and strftime_now; a sandbox without
// mutation.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/value.h"

namespace zipage::jinja {

// Immutable: render() may be called from any thread.
class Template {
 public:
  // Throws Error naming the line.
  explicit Template(std::string_view source);

  // `variables`: a dict. Throws Error naming the line; never hangs and never runs out of stack,
  // whatever the template says.
  std::string render(const Value& variables, std::time_t now, const Limits& limits = {}) const;

 private:
  std::shared_ptr<const Body> body_;
};

}  // namespace zipage::jinja
