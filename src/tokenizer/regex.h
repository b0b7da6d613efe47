// PCRE2 with its JIT, set up to read the patterns of tokenizer files as their own engine does.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"

namespace zipage {

// Immutable; matching is thread-safe.
class Regex {
 public:
  // Throws Error naming `where` (file and field) if the pattern does not compile.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Calls sink(begin, end) for every match from left to right; `text` is valid UTF-8. An empty
  // match right after the previous match does not count.
  void for_each_match(std::string_view text,
                      FunctionRef<void(size_t begin, size_t end)> sink) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// A literal as a pattern that matches exactly it.
std::string escape_regex(std::string_view literal);

}  // namespace zipage
