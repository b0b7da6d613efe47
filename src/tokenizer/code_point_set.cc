#include "tokenizer/code_point_set.h"

#include <algorithm>
#include <array>
#include <utf8proc.h>

namespace zipage {

CodePointSet::CodePointSet(std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) add(range.first, range.last);
}

void CodePointSet::add(char32_t first, char32_t last) {
  // Those that overlap or touch the new range become part of it.
  const auto begin =
      std::lower_bound(ranges_.begin(), ranges_.end(), first,
                       [](const Range& range, char32_t c) { return range.last + 1 < c; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), Range{first, last});
}

void CodePointSet::add(const CodePointSet& other) {
  std::vector<Range> all(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             all.begin(), [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : all) add(range.first, range.last);  // each at the end
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) out.ranges_.push_back({next, kMaxCodePoint});
  return out;
}

CodePointSet white_space_set() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
}

namespace {

struct CategoryRun {  // up to where the next one starts
  char32_t first;
  utf8proc_propval_t category;
};

// All code points'. Made once a process: they are the same for every pattern, and asking for each
// takes longer than all else that a small tokenizer needs.
const std::vector<CategoryRun>& category_runs() {
  static const std::vector<CategoryRun> kRuns = [] {
    std::vector<CategoryRun> runs;
    for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
      const auto category = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->category;
      if (runs.empty() || category != runs.back().category) runs.push_back({c, category});
    }
    return runs;
  }();
  return kRuns;
}

}  // namespace

std::optional<CodePointSet> find_general_category(std::string_view name) {
  // In the order of utf8proc_category_t.
  static constexpr std::array<std::string_view, 30> kNames = {
      "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  if (name.empty() || std::none_of(kNames.begin(), kNames.end(),
                                   [&](auto known) { return known.starts_with(name); })) {
    return std::nullopt;
  }
  const std::vector<CategoryRun>& runs = category_runs();
  CodePointSet out;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!kNames[static_cast<size_t>(runs[i].category)].starts_with(name)) continue;
    out.add(runs[i].first, i + 1 < runs.size() ? runs[i + 1].first - 1 : kMaxCodePoint);
  }
  return out;
}

}  // namespace zipage
