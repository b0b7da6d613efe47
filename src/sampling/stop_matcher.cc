#include "sampling/stop_matcher.h"

#include <algorithm>

namespace zipage {

int32_t StopStrings::Pattern::advance(int32_t matched, char byte) const {
  while (matched > 0 && text[static_cast<size_t>(matched)] != byte)
    matched = fallback[static_cast<size_t>(matched) - 1];
  return text[static_cast<size_t>(matched)] == byte ? matched + 1 : 0;
}

StopStrings::StopStrings(const std::vector<std::string>& stops, bool include_in_output)
    : include_in_output_(include_in_output) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = stop;
    pattern.fallback.reserve(stop.size());
    pattern.fallback.push_back(0);
    for (size_t i = 1; i < stop.size(); ++i)
      pattern.fallback.push_back(pattern.advance(pattern.fallback.back(), stop[i]));
  }
}

StopMatcher::StopMatcher(const StopStrings& stops)
    : stops_(stops), progress_(stops.patterns().size(), 0) {}

bool StopMatcher::push(std::string_view piece, std::string* out) {
  if (!matched_.empty()) return true;
  const size_t begin = held_.size();
  held_ += piece;
  for (size_t i = begin; i < held_.size(); ++i) {
    for (size_t p = 0; p < progress_.size(); ++p) {
      const StopStrings::Pattern& pattern = stops_.patterns()[p];
      progress_[p] = pattern.advance(progress_[p], held_[i]);
      if (static_cast<size_t>(progress_[p]) < pattern.text.size()) continue;
      matched_ = pattern.text;
      const size_t end = i + 1;
      out->append(held_, 0, stops_.include_in_output() ? end : end - matched_.size());
      held_.clear();
      return true;
    }
  }
  int32_t kept = 0;
  for (const int32_t matched : progress_) kept = std::max(kept, matched);
  const size_t released = held_.size() - static_cast<size_t>(kept);
  out->append(held_, 0, released);
  held_.erase(0, released);
  return false;
}

void StopMatcher::finish(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace zipage
