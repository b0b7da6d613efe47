// Cutting text around the matches of patterns: those of the first, then each piece at those of the
// second, and so on.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/pattern.h"

namespace zipage {

// Immutable, thread-safe.
class Cuts {
 public:
  explicit Cuts(std::vector<Pattern> patterns);

  size_t size() const { return patterns_.size(); }
  // The first pattern from `step` on that may match in `text`; size() if none does.
  size_t next(size_t step, std::string_view text) const;
  // Calls sink for every piece that pattern `step` makes of `text`; none is empty.
  void cut(size_t step,
           std::string_view text,
           FunctionRef<void(std::string_view piece)> sink) const;

 private:
  std::vector<Pattern> patterns_;
  // By a character's first byte: which patterns may begin a match there (bit 63: those after, too).
  std::array<uint64_t, 256> wanted_{};
};

}  // namespace zipage
