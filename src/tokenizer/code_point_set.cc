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
  for (const Range& range : other.ranges_) add(range.first, range.last);
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

GeneralCategories::GeneralCategories() {
  int last = -1;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category != last) runs_.push_back({c, static_cast<uint8_t>(category)});
    last = category;
  }
}

std::optional<CodePointSet> GeneralCategories::find(std::string_view name) const {
  // In the order of utf8proc_category_t.
  static constexpr std::array<std::string_view, 30> kNames = {
      "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  if (name.empty() || std::none_of(kNames.begin(), kNames.end(),
                                   [&](auto known) { return known.starts_with(name); })) {
    return std::nullopt;
  }
  CodePointSet out;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!kNames[runs_[i].category].starts_with(name)) continue;
    out.add(runs_[i].first, i + 1 < runs_.size() ? runs_[i + 1].first - 1 : kMaxCodePoint);
  }
  return out;
}

}  // namespace zipage
