// Tokens that are found in the text before anything else is done to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"

namespace zipage {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;      // left out of decoded text on request, and not found on request
  bool normalized = false;   // looked for in normalized text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space to its left along
  bool rstrip = false;
};

// A section of text: a token that was found (id >= 0), or what lies between (id == -1).
struct Section {
  std::string_view text;
  int32_t id = -1;
};

// Finds the leftmost, then longest tokens. Immutable, thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  // Calls sink for every section of `text` in order; sections that are text are not empty.
  void split(std::string_view text,
             bool find_special,
             FunctionRef<void(const Section&)> sink) const;

 private:
  struct Node {
    int32_t token = -1;  // index into tokens_
    std::vector<std::pair<uint8_t, int32_t>> next;
  };
  // Where a token may start, from `begin` on; the end of the text if nowhere.
  size_t find_first(std::string_view text, size_t begin) const;
  // The longest token that starts at `begin`: its index or -1.
  int32_t match_at(std::string_view text, size_t begin) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> first_;      // [256] child of the root by byte, -1: none
  std::optional<char> only_first_;  // the byte with which all tokens start, if it is one
};

}  // namespace zipage
