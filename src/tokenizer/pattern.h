// A pattern of a tokenizer file: a table where that can say it, else a regular expression.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/regex.h"
#include "tokenizer/scanner.h"

namespace zipage {

// Immutable; matching is thread-safe.
class Pattern {
 public:
  // Throws Error naming `where` (file and field) if the pattern does not compile.
  Pattern(const std::string& pattern, const std::string& where)
      : scanner_(Scanner::compile(pattern)) {
    if (scanner_ == nullptr) regex_.emplace(pattern, where);
  }

  // Calls sink(begin, end) for every match from left to right; `text` is valid UTF-8. An empty
  // match right after the previous match does not count.
  void for_each_match(std::string_view text,
                      FunctionRef<void(size_t begin, size_t end)> sink) const {
    if (scanner_ != nullptr) {
      scanner_->for_each_match(text, sink);
    } else {
      regex_->for_each_match(text, sink);
    }
  }

  // Whether a match may begin with a character whose first byte this is.
  bool may_begin(char byte) const { return scanner_ == nullptr || scanner_->may_begin(byte); }

 private:
  std::unique_ptr<const Scanner> scanner_;
  std::optional<Regex> regex_;
};

}  // namespace zipage
