#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utf8proc.h>

#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace zipage {
namespace {

// The start of the character that ends at `end` > 0.
size_t character_before(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  nodes_.emplace_back();
  first_.assign(256, -1);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    if (tokens_[t].content.empty()) continue;
    int32_t node = 0;
    for (const char c : tokens_[t].content) {
      const auto byte = static_cast<uint8_t>(c);
      auto& next = nodes_[static_cast<size_t>(node)].next;
      const auto found =
          std::find_if(next.begin(), next.end(), [&](const auto& n) { return n.first == byte; });
      if (found != next.end()) {
        node = found->second;
      } else {
        const auto child = static_cast<int32_t>(nodes_.size());
        next.emplace_back(byte, child);
        if (node == 0) first_[byte] = child;
        nodes_.emplace_back();
        node = child;
      }
    }
    int32_t& token = nodes_[static_cast<size_t>(node)].token;
    if (token < 0) token = static_cast<int32_t>(t);
  }
  if (nodes_[0].next.size() == 1) only_first_ = static_cast<char>(nodes_[0].next[0].first);
}

int32_t AddedTokenFinder::match_at(std::string_view text, size_t begin) const {
  int32_t node = first_[static_cast<uint8_t>(text[begin])];
  int32_t best = -1;
  for (size_t i = begin + 1; node >= 0; ++i) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.token >= 0) best = here.token;
    if (i >= text.size()) break;
    const auto byte = static_cast<uint8_t>(text[i]);
    node = -1;
    for (const auto& [key, child] : here.next) {
      if (key == byte) {
        node = child;
        break;
      }
    }
  }
  return best;
}

size_t AddedTokenFinder::find_first(std::string_view text, size_t begin) const {
  if (only_first_) return std::min(text.find(*only_first_, begin), text.size());
  while (begin < text.size() && first_[static_cast<uint8_t>(text[begin])] < 0) ++begin;
  return begin;
}

void AddedTokenFinder::split(std::string_view text,
                             bool find_special,
                             FunctionRef<void(const Section&)> sink) const {
  size_t done = 0;
  size_t i = 0;
  while (!tokens_.empty() && i < text.size()) {
    i = find_first(text, i);
    if (i == text.size()) break;
    const int32_t index = match_at(text, i);
    if (index < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = i;
    size_t end = i + token.content.size();
    i = end;
    if (token.special && !find_special) continue;
    if (token.single_word) {
      const bool left =
          begin > 0 && is_word_character(read_utf8(text, character_before(text, begin)).code_point);
      const bool right = end < text.size() && is_word_character(read_utf8(text, end).code_point);
      if (left || right) continue;
    }
    if (begin < done) continue;  // its start went to the token before, with its white space
    if (token.lstrip) {
      while (begin > done) {
        const size_t before = character_before(text, begin);
        if (before < done || !is_white_space(read_utf8(text, before).code_point)) break;
        begin = before;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Step step = read_utf8(text, end);
        if (!is_white_space(step.code_point)) break;
        end += step.length;
      }
    }
    if (begin > done) sink({text.substr(done, begin - done), -1});
    sink({text.substr(begin, end - begin), token.id});
    done = end;
    i = std::max(i, done);
  }
  if (done < text.size()) sink({text.substr(done), -1});
}

}  // namespace zipage
