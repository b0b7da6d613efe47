#include "tokenizer/cuts.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace zipage {
namespace {

constexpr size_t kLastBit = 63;

}  // namespace

Cuts::Cuts(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
  for (size_t step = 0; step < patterns_.size(); ++step) {
    for (size_t byte = 0; byte < wanted_.size(); ++byte) {
      const bool may_begin = step >= kLastBit || patterns_[step].may_begin(static_cast<char>(byte));
      wanted_[byte] |= uint64_t{may_begin} << std::min(step, kLastBit);
    }
  }
}

size_t Cuts::next(size_t step, std::string_view text) const {
  if (step >= kLastBit || step >= size()) return step;
  uint64_t wanted = 0;
  for (const char c : text) {
    wanted |= wanted_[static_cast<uint8_t>(c)] >> step;
    if ((wanted & 1) != 0) return step;
  }
  return wanted == 0 ? size() : step + static_cast<size_t>(std::countr_zero(wanted));
}

void Cuts::cut(size_t step,
               std::string_view text,
               FunctionRef<void(std::string_view piece)> sink) const {
  size_t done = 0;
  const auto emit = [&](size_t begin, size_t end) {
    if (begin != end) sink(text.substr(begin, end - begin));
  };
  patterns_[step].for_each_match(text, [&](size_t begin, size_t end) {
    emit(done, begin);
    emit(begin, end);
    done = end;
  });
  emit(done, text.size());
}

}  // namespace zipage
