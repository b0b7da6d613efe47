#include "tokenizer/scanner.h"

namespace zipage {

void Scanner::for_each_match(std::string_view text,
                             FunctionRef<void(size_t begin, size_t end)> sink) const {
  for (size_t begin = 0; begin < text.size();) {
    if (!may_begin(text[begin])) {
      ++begin;
      continue;
    }
    const Attempt attempt = match_at(text, begin);
    if (attempt.end != 0) {
      sink(begin, attempt.end);
      begin = attempt.end;
    } else {
      begin = attempt.retry;
    }
  }
}

Scanner::Attempt Scanner::match_at(std::string_view text, size_t begin) const {
  size_t end = 0;
  uint32_t state = start_;
  size_t since = begin;  // where `state` was reached
  size_t i = begin;
  for (; i < text.size();) {
    const Character c = read(text.data() + i);
    const uint32_t step = table_[state + c.kind];
    if (step & kMatched) end = i;
    const uint32_t next = step >> 1;
    if (next == 0) return {end, end != 0 ? end : skip_alike(text, begin, since, i, state)};
    i += c.length;
    if (next != state) since = i;
    state = next;
  }
  if (table_[state + end_kind_] & kMatched) end = i;
  return {end, end != 0 ? end : skip_alike(text, begin, since, i, state)};
}

// No match begins at `begin`: the attempt was in `state` from `from` until it failed at `to`. One
// that begins later and comes to that state in between would fail there too: without this, white
// space that does not end the text takes quadratic time to be searched for \s+$.
size_t Scanner::skip_alike(
    std::string_view text, size_t begin, size_t from, size_t to, uint32_t state) const {
  size_t next = begin + utf8_length(text[begin]);
  while (next < to) {
    const Character c = read(text.data() + next);
    if (next + c.length < from || table_[start_ + c.kind] >> 1 != state) break;
    next += c.length;
  }
  return next;
}

}  // namespace zipage
