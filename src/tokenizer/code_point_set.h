// Sets of code points, as patterns name them.
#pragma once

#include <cstdint>
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

// Every code point's general category; making one takes some milliseconds.
class GeneralCategories {
 public:
  GeneralCategories();
  // "Lu", or all that begin with "L"; none if there is no such category.
  std::optional<CodePointSet> find(std::string_view name) const;

 private:
  struct Run {  // up to where the next run starts
    char32_t first;
    uint8_t category;
  };
  std::vector<Run> runs_;
};

}  // namespace zipage
