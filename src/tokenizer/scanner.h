// A pattern as a table with one step a character: what the regular expression finds, several times
// as fast, and in time that grows with the text alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/utf8.h"

namespace zipage {

// Immutable, thread-safe.
class Scanner {
 public:
  // Null if the pattern is more than such a table can say (see pattern_tree.h), or can match
  // nothing; a Regex may know it.
  static std::unique_ptr<const Scanner> compile(std::string_view pattern);

  // Calls sink(begin, end) for every match from left to right; `text` is valid UTF-8.
  void for_each_match(std::string_view text,
                      FunctionRef<void(size_t begin, size_t end)> sink) const;
  // Whether a match may begin with a character whose first byte this is.
  bool may_begin(char byte) const { return may_begin_[static_cast<uint8_t>(byte)]; }

 private:
  friend class ScannerBuilder;
  Scanner() = default;

  struct Character {
    size_t kind;  // all characters of a kind are alike to the pattern
    size_t length;
  };
  Character read(const char* at) const {
    const auto lead = static_cast<uint8_t>(*at);
    if (lead < 0x80) return {ascii_kinds_[lead], 1};
    const auto more = [&](int i) { return static_cast<uint8_t>(at[i]) & 0x3Fu; };
    if (lead < 0xE0) return {kind_of((lead & 0x1Fu) << 6 | more(1)), 2};
    if (lead < 0xF0) return {kind_of((lead & 0xFu) << 12 | more(1) << 6 | more(2)), 3};
    return {kind_of((lead & 7u) << 18 | more(1) << 12 | more(2) << 6 | more(3)), 4};
  }
  size_t kind_of(uint32_t code_point) const {
    return pages_[size_t{page_of_[code_point >> kPageBits]} << kPageBits |
                  (code_point & (kPageSize - 1))];
  }

  struct Attempt {
    size_t end;    // of the match; 0: none
    size_t retry;  // without a match: where the next one may begin
  };
  Attempt match_at(std::string_view text, size_t begin) const;
  size_t skip_alike(
      std::string_view text, size_t begin, size_t from, size_t to, uint32_t state) const;

  static constexpr int kPageBits = 8;
  static constexpr size_t kPageSize = size_t{1} << kPageBits;
  // A step: the next state's row in table_, times two, plus one if a match ends before the
  // character. Row 0: no match can come any more.
  static constexpr uint32_t kMatched = 1;

  std::vector<uint32_t> table_;  // [states, kinds + 1]; the last column: the text ends
  uint32_t start_ = 0;           // rows are offsets into table_
  size_t end_kind_ = 0;
  std::array<uint8_t, 0x80> ascii_kinds_{};
  std::array<bool, 256> may_begin_{};
  std::vector<uint16_t> page_of_;  // by code_point >> kPageBits
  std::vector<uint8_t> pages_;     // [pages, kPageSize] kinds
};

}  // namespace zipage
