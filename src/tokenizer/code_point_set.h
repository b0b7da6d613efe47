// Sets of code points, as patterns name them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace zipage {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

class CodePointSet {
 public:
  struct Range {
    char32_t first;
    char32_t last;
    bool operator==(const Range&) const = default;
  };

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges);
  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  const std::vector<Range>& ranges() const { return ranges_; }  // sorted, with gaps between
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// Unicode's White_Space.
CodePointSet white_space_set();

// The code points of a general category: "Lu", or all that begin with "L". None if there is no such
// category. The first call of a process takes some milliseconds.
std::optional<CodePointSet> find_general_category(std::string_view name);

}  // namespace zipage
