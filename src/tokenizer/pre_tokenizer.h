// Cuts text into the pieces that are merged on their own (the "pre_tokenizer" of tokenizer.json).
#pragma once

#include <memory>
#include <string>
#include <string_view>
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

// Cuts the text before and after every match of the first pattern, then each piece at those of the
// second, and so on. At most 64 patterns.
std::unique_ptr<PreTokenizer> make_cuts(std::vector<Pattern> patterns);

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert);

// Prefixes a space; the split by pattern that the file calls "use_regex" is a separate split.
std::unique_ptr<PreTokenizer> make_prefix_space();

enum class PrependScheme { kAlways, kFirst, kNever };

// Spaces become `replacement`, which is also put in front; with `split`, a piece starts at each.
std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement,
                                             PrependScheme scheme,
                                             bool split);

// Steps that are taken one after the other.
class PreTokenizerSteps {
 public:
  void cut(Pattern pattern);  // before and after every match
  void add(std::unique_ptr<PreTokenizer> step);
  std::unique_ptr<PreTokenizer> finish();

 private:
  void close();  // makes one step of the cuts so far

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
  std::vector<Pattern> cuts_;
};

// The pattern of GPT-2, which "ByteLevel" with use_regex means.
extern const char* const kGpt2Pattern;

}  // namespace zipage
