// The part of regular expressions that tokenizers' patterns are written in, as a tree.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/code_point_set.h"

namespace zipage {

struct PatternNode {
  enum class Kind {
    kSet,       // one character of `set`
    kSequence,  // the children, one after the other; none: nothing
    kChoice,    // the first child that lets the rest match
    kRepeat,    // the one child as often as can be: `min` to `max` times
    kBefore,    // nothing, where the text ends or a character of `set` follows
  };
  static constexpr int kNoMax = -1;

  Kind kind = Kind::kSequence;
  CodePointSet set;
  std::vector<PatternNode> children;
  int min = 0;
  int max = kNoMax;
};

// As Oniguruma reads it. None if the pattern is wrong or uses anything else: lazy and possessive
// repeats, captures, looking back, \w and more.
std::optional<PatternNode> parse_pattern(std::string_view pattern);

}  // namespace zipage
