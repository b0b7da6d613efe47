#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace zipage::jinja {
namespace {

constexpr std::array<std::string_view, 25> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",",
};

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }

// All line ends become \n, and one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_data();
    tokens_.push_back({TokenKind::kEnd, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(std::string_view what) const {
    fail_invalid("line {}: {}", line_, what);
  }

  void advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                    text_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }
  bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  // Emits the text before a tag that begins with `sign` ('-', '+' or another character).
  void emit_data(std::string_view data, char sign, bool is_variable) {
    if (sign == '-') {
      data = strip(data, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = data.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      // The start of the data is a line's start only after a newline that a tag has eaten.
      if ((start > 0 || at_line_start_) && strip(data.substr(start), true, false).empty()) {
        data = data.substr(0, start);
      }
    }
    if (!data.empty()) tokens_.push_back({TokenKind::kData, std::string(data), line_});
  }

  void lex_data() {
    size_t begin = at_;
    for (;; ++begin) {
      begin = text_.find('{', begin);
      if (begin == std::string_view::npos || begin + 1 >= text_.size()) {
        tokens_.push_back({TokenKind::kData, std::string(text_.substr(at_)), line_});
        advance(text_.size() - at_);
        return;
      }
      const char next = text_[begin + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const std::string_view data = text_.substr(at_, begin - at_);
    const char kind = text_[begin + 1];
    const char sign = begin + 2 < text_.size() ? text_[begin + 2] : ' ';
    const bool signed_tag = sign == '-' || sign == '+';
    emit_data(data, sign, kind == '{');
    advance(begin - at_);
    if (kind == '%' && lex_raw(begin + (signed_tag ? 3 : 2))) return;
    advance(signed_tag ? 3 : 2);
    if (kind == '#') {
      lex_comment();
    } else {
      lex_tag(kind == '{');
    }
  }

  // After a tag: the white space that it takes along. `length` is of the end itself.
  void finish_tag(size_t length, bool strips, bool takes_newline) {
    advance(length);
    if (strips) {
      const std::string_view rest = text_.substr(at_);
      advance(rest.size() - strip(rest, true, false).size());
    } else if (takes_newline && looking_at("\n")) {
      advance(1);
    }
    at_line_start_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  void lex_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail_here("a comment {# has no end");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end - at_);
    finish_tag(2, sign == '-', sign != '+');
  }

  // {% raw %} ... {% endraw %}, if it stands at the tag whose inside starts at `inside`.
  bool lex_raw(size_t inside) {
    size_t i = inside;
    const auto skip_space = [&] {
      i = text_.size() - strip(text_.substr(std::min(i, text_.size())), true, false).size();
    };
    skip_space();
    if (!text_.substr(i).starts_with("raw")) return false;
    i += 3;
    skip_space();
    const bool strips = text_.substr(i).starts_with("-%}");
    if (!strips && !text_.substr(i).starts_with("%}")) return false;
    advance(i - at_);
    finish_tag(strips ? 3 : 2, strips, false);
    for (size_t begin = at_;; ++begin) {
      begin = text_.find("{%", begin);
      if (begin == std::string_view::npos) fail_here("{% raw %} has no {% endraw %}");
      i = begin + 2;
      const char sign = i < text_.size() ? text_[i] : ' ';
      if (sign == '-' || sign == '+') ++i;
      skip_space();
      if (!text_.substr(i).starts_with("endraw")) continue;
      i += 6;
      skip_space();
      const char end_sign = i < text_.size() ? text_[i] : ' ';
      if (end_sign == '-' || end_sign == '+') ++i;
      if (!text_.substr(i).starts_with("%}")) continue;
      emit_data(text_.substr(at_, begin - at_), sign, false);
      advance(i - at_);
      finish_tag(2, end_sign == '-', end_sign != '+');
      return true;
    }
  }

  // The inside of {{ }} or {% %}.
  void lex_tag(bool is_variable) {
    push(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    std::string open;  // the brackets that are open
    const std::string_view end = is_variable ? "}}" : "%}";
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (open.empty()) {
        const bool has_sign = c == '-' || (c == '+' && !is_variable);
        if (text_.substr(at_ + (has_sign ? 1 : 0)).starts_with(end)) {
          push(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          if (has_sign) advance(1);
          finish_tag(2, c == '-', !is_variable && c != '+');
          return;
        }
      }
      const Utf8Step step = read_utf8(text_, at_);
      if (is_space(step.code_point)) {
        advance(step.length);
      } else if (is_decimal(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        size_t length = 1;
        while (at_ + length < text_.size() && is_name_part(text_[at_ + length])) ++length;
        push(TokenKind::kName, std::string(text_.substr(at_, length)));
        advance(length);
      } else if (c == '"' || c == '\'') {
        lex_string(c);
      } else {
        lex_operator(open);
      }
    }
    fail_here(is_variable ? "{{ has no end }}" : "{% has no end %}");
  }

  void lex_operator(std::string& open) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](std::string_view o) { return looking_at(o); });
    if (found == kOperators.end()) {
      fail_here("unexpected character " + string_repr(text_.substr(at_, 1)));
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) {
        fail_here(std::string("unexpected '") + c + "'");
      }
      open.pop_back();
    }
    push(TokenKind::kOperator, std::string(*found));
    advance(found->size());
  }

  void lex_number() {
    size_t i = at_;
    std::string digits;
    const auto take_digits = [&] {
      while (i < text_.size() &&
             (is_decimal(text_[i]) ||
              (text_[i] == '_' && i + 1 < text_.size() && is_decimal(text_[i + 1])))) {
        if (text_[i] != '_') digits += text_[i];
        ++i;
      }
    };
    take_digits();
    bool is_float = false;
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                           tokens_.back().text == "." && text_[at_ - 1] == '.';
    if (!after_dot && i + 1 < text_.size() && text_[i] == '.' && is_decimal(text_[i + 1])) {
      is_float = true;
      digits += '.';
      ++i;
      take_digits();
    }
    if (!after_dot && i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
      size_t exponent = i + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_decimal(text_[exponent])) {
        is_float = true;
        digits.append(text_.substr(i, exponent - i));
        i = exponent;
        take_digits();
      }
    }
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits));
    advance(i - at_);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_here("a string has no end");
    push(TokenKind::kString, unescape(text_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view body) const {
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\') {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      switch (c) {
        case '\n':
          break;
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'a':
          out += '\a';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'v':
          out += '\v';
          break;
        case '\\':
        case '\'':
        case '"':
          out += c;
          break;
        case 'x':
          i += append_hex(body, i + 1, 2, out);
          break;
        case 'u':
          i += append_hex(body, i + 1, 4, out);
          break;
        case 'U':
          i += append_hex(body, i + 1, 8, out);
          break;
        default:
          if (c >= '0' && c <= '7') {
            char32_t value = 0;
            size_t k = 0;
            for (; k < 3 && i + k < body.size() && body[i + k] >= '0' && body[i + k] <= '7'; ++k) {
              value = 8 * value + static_cast<char32_t>(body[i + k] - '0');
            }
            append_utf8(value, out);
            i += k - 1;
          } else {
            (out += '\\') += c;
          }
      }
    }
    return out;
  }

  size_t append_hex(std::string_view body, size_t begin, size_t count, std::string& out) const {
    char32_t value = 0;
    if (begin + count > body.size()) fail_here("a string has a cut-off escape");
    for (const char c : body.substr(begin, count)) {
      const int digit = is_decimal(c)          ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail_here("a string has a broken escape");
      value = 16 * value + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      fail_here("a string has an escape that is no character");
    }
    append_utf8(value, out);
    return count;
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace zipage::jinja
