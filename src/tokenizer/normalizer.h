// Rewrites text before it is cut (the "normalizer" of tokenizer.json).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pattern.h"

namespace zipage {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Immutable, thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites valid UTF-8 in place.
  virtual void apply(std::string& text) const = 0;
  // Whether apply() would leave this text as it is; false if that takes work to know.
  virtual bool leaves(std::string_view text) const = 0;
};

std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form);
std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip_accents();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
std::unique_ptr<Normalizer> make_prepend(std::string prefix);
std::unique_ptr<Normalizer> make_replace_string(std::string from, std::string to);
std::unique_ptr<Normalizer> make_replace_pattern(Pattern from, std::string to);
std::unique_ptr<Normalizer> make_normalizer_sequence(
    std::vector<std::unique_ptr<Normalizer>> steps);

// Replaces every `from` by `to`, left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to);

// Unicode's White_Space.
bool is_white_space(char32_t code_point);

}  // namespace zipage
