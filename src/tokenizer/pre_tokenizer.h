// Cuts text into the pieces that are merged on their own (the "pre_tokenizer" of tokenizer.json).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/pattern.h"

namespace zipage {

struct Piece {
  std::string_view text;  // valid UTF-8, never empty
  bool first = false;     // begins where the whole input begins
};
using PieceSink = FunctionRef<void(Piece)>;

// Immutable, thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // A piece handed to `sink` is valid only during that call.
  virtual void split(Piece piece, PieceSink sink) const = 0;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert);

// Prefixes a space; the split by pattern that the file calls "use_regex" is a separate split.
std::unique_ptr<PreTokenizer> make_prefix_space();

enum class PrependScheme { kAlways, kFirst, kNever };

// Spaces become `replacement`, which is also put in front; with `split`, a piece starts at each.
std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement,
                                             PrependScheme scheme,
                                             bool split);

// Steps that are taken one after the other. Those that only cut, and come last, are kept apart: a
// word's cuts can be remembered with its ids (see word_encoder.h).
class PreTokenizerSteps {
 public:
  void cut(Pattern pattern) { cuts_.push_back(std::move(pattern)); }  // around every match
  void add(std::unique_ptr<PreTokenizer> step);

  std::unique_ptr<PreTokenizer> take_steps();  // null: there are none
  std::vector<Pattern> take_cuts() { return std::move(cuts_); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
  std::vector<Pattern> cuts_;
};

// The pattern of GPT-2, which "ByteLevel" with use_regex means.
extern const char* const kGpt2Pattern;

}  // namespace zipage
