// Text that was marked as safe HTML: added to other text, it has that escaped, as Python's Markup
// does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/jinja/value.h"

namespace zipage::jinja {

struct MarkupObject : StringObject {};

inline bool is_markup(const Value& value) {
  return value.is_string() && dynamic_cast<const MarkupObject*>(value.identity()) != nullptr;
}

inline Value make_markup(std::string text) {
  auto object = std::make_shared<MarkupObject>();
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

inline std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace zipage::jinja
