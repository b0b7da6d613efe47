// Finds stop strings in text that comes in pieces.
//
//   const StopStrings stops({"###", "\n\n"}, /*include_in_output=*/false);
//   StopMatcher matcher(stops);
//   if (matcher.push(piece, &output)) ...  // matcher.matched() says which
//
// The search is Knuth, Morris and Pratt's, so that a byte of text costs a constant time per stop
// string, whatever the strings and the text are. Threads: StopStrings is immutable and shared by
// the sequences of a request; a StopMatcher belongs to one sequence, on the engine's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zipage {

// The stop strings of a request, with their failure functions.
class StopStrings {
 public:
  StopStrings(const std::vector<std::string>& stops, bool include_in_output);

  struct Pattern {
    std::string text;
    // fallback[i]: length of the longest proper prefix of `text` that its first i + 1 bytes end
    // with.
    std::vector<int32_t> fallback;

    // The number of leading bytes matched after one more byte of text.
    int32_t advance(int32_t matched, char byte) const;
  };
  const std::vector<Pattern>& patterns() const { return patterns_; }
  bool include_in_output() const { return include_in_output_; }

 private:
  std::vector<Pattern> patterns_;
  bool include_in_output_;
};

class StopMatcher {
 public:
  // `stops` must outlive the matcher.
  explicit StopMatcher(const StopStrings& stops);
  // Appends a piece. Text that can no longer be part of a stop string is added to `out`; what may
  // be the beginning of one is held back. Returns true once a stop string was found: `out` ends
  // before it (or after it, with include_in_output), and nothing more comes out. The stop string
  // that is complete first wins; of those that end together, the first of the list.
  bool push(std::string_view piece, std::string* out);
  // The end of the sequence: adds what was held back to `out`.
  void finish(std::string* out);
  const std::string& matched() const { return matched_; }

 private:
  const StopStrings& stops_;
  // Bytes matched so far, for each pattern.
  std::vector<int32_t> progress_;
  std::string held_;
  std::string matched_;
};

}  // namespace zipage
