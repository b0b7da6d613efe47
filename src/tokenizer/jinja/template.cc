#include "tokenizer/jinja/template.h"

#include "tokenizer/jinja/parser.h"

namespace zipage::jinja {

Template::Template(std::string_view source)
    : body_(std::make_shared<Body>(parse_template(source))) {}

std::string Template::render(const Value& variables, std::time_t now, const Limits& limits) const {
  return Interpreter(variables, now, limits).run(*body_);
}

}  // namespace zipage::jinja
