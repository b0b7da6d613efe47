// The stop string that is complete first wins, whatever the pieces; of several that end together
// the first of the list.
#include <algorithm>
#include <utility>

#include "sampling/sampler_state.h"

namespace zipage {
namespace {

// Length of the longest end of `text` that a stop string begins with: it may yet become that
// string.
size_t longest_beginning(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > longest; --length) {
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) longest = length;
    }
  }
  return longest;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_in_output)
    : stops_(std::move(stops)), include_in_output_(include_in_output) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool StopMatcher::push(std::string_view piece, std::string* out) {
  if (!matched_.empty()) return true;
  held_ += piece;
  const std::string* found = nullptr;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos || begin + stop.size() >= end) continue;
    end = begin + stop.size();
    found = &stop;
  }
  if (found != nullptr) {
    matched_ = *found;
    out->append(held_, 0, include_in_output_ ? end : end - found->size());
    held_.clear();
    return true;
  }
  const size_t released = held_.size() - longest_beginning(held_, stops_);
  out->append(held_, 0, released);
  held_.erase(0, released);
  return false;
}

void StopMatcher::finish(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace zipage
