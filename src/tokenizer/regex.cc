#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace zipage {

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool has_jit = false;
  ~Code() { pcre2_code_free(code); }
};

namespace {

// Tokenizer files are written for Oniguruma. What differs: its \s is Unicode's White_Space while
// PCRE2's adds U+180E, its \w is wider, and its \h is a hexadecimal digit.
std::string translate(std::string_view pattern, const std::string& where) {
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      const bool in_class = class_depth > 0;
      switch (next) {
        case 's':
          out += "\\p{Wspace}";
          break;
        case 'S':
          out += "\\P{Wspace}";
          break;
        case 'w':
          out += in_class ? "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
                          : "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
          break;
        case 'W':
          if (in_class) fail_invalid("{}: \\W inside a class is not supported: {}", where, pattern);
          out += "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
          break;
        case 'h':
          out += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
          break;
        default:
          (out += '\\') += next;
      }
      continue;
    }
    if (c == '[') {
      if (class_depth > 0 && i + 1 < pattern.size() && pattern[i + 1] == ':') {
        out += c;  // a POSIX class such as [:alpha:]
        continue;
      }
      if (class_depth > 0) {
        out += "\\[";  // a nested set; only a literal bracket occurs in practice
        continue;
      }
      ++class_depth;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') {
        out += "\\]";
        ++i;
      }
      continue;
    }
    if (c == ']' && class_depth > 0 && !(i > 0 && pattern[i - 1] == ':')) --class_depth;
    out += c;
  }
  return out;
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where)
    : code_(std::make_unique<Code>()) {
  const std::string text = translate(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ match at every line.
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
  if (code_->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    fail_invalid("{}: the pattern does not compile at offset {}: {}: {}", where, offset,
                 reinterpret_cast<const char*>(message), pattern);
  }
  code_->has_jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::for_each_match(std::string_view text,
                           FunctionRef<void(size_t begin, size_t end)> sink) const {
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
  if (data == nullptr) throw std::bad_alloc();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
  size_t start = 0;
  size_t last_end = std::string_view::npos;
  while (start <= text.size()) {
    int rc = code_->has_jit
                 ? pcre2_jit_match(code_->code, subject, text.size(), start, 0, data.get(), nullptr)
                 : PCRE2_ERROR_JIT_STACKLIMIT;
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The interpreter keeps its frames on the heap.
      rc = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), nullptr);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      fail(StatusCode::kResourceExhausted,
           "a tokenizer pattern gave up on the text (PCRE2 error {})", rc);
    }
    const size_t begin = span[0];
    const size_t end = span[1];
    if (end > begin) {
      sink(begin, end);
      start = last_end = end;
      continue;
    }
    if (end != last_end) sink(begin, end);
    last_end = end;
    if (end >= text.size()) return;
    start = end + utf8_length(text[end]);
  }
}

std::string escape_regex(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       static_cast<uint8_t>(c) >= 0x80;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace zipage
