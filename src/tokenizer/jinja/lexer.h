// A template's text to tokens, with Jinja's rules for white space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zipage::jinja {

enum class TokenKind : uint8_t {
  kData,        // text outside of tags
  kBlockBegin,  // {%
  kBlockEnd,
  kVariableBegin,  // {{
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // a string's value, an operator, a name ...
  int line;
};

// As Hugging Face sets Jinja up: a block's newline and its indentation go with it (trim_blocks,
// lstrip_blocks). Throws Error naming the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace zipage::jinja
