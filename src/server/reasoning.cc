#include "server/reasoning.h"

#include <algorithm>

namespace zipage::server {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

// Length of the longest end of `text` that `mark` begins with.
size_t beginning_of(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == mark.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

const std::vector<std::string>& reasoning_parsers() {
  static const std::vector<std::string> parsers{"deepseek_r1", "qwen3", "think"};
  return parsers;
}

ReasoningMode reasoning_mode(const std::string& parser, std::string_view prompt) {
  if (parser.empty()) return ReasoningMode::kOff;
  const size_t end = prompt.find_last_not_of(" \t\r\n");
  prompt = prompt.substr(0, end == std::string_view::npos ? 0 : end + 1);
  if (prompt.ends_with(kOpen)) return ReasoningMode::kInside;
  // A template that closes the thought for the model wants no thinking.
  if (prompt.ends_with(kClose)) return ReasoningMode::kOff;
  return parser == "deepseek_r1" ? ReasoningMode::kInside : ReasoningMode::kMaybe;
}

void ReasoningSplitter::push(std::string_view piece, std::string* reasoning, std::string* answer) {
  held_ += piece;
  if (held_.empty()) return;
  if (at_start_ && state_ != State::kAnswer) {
    // A model may write the opening mark itself or find it in the prompt.
    const size_t begin = held_.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return;
    const std::string_view text = std::string_view(held_).substr(begin);
    if (text.size() < kOpen.size() && kOpen.starts_with(text)) return;
    at_start_ = false;
    if (text.starts_with(kOpen)) {
      held_.erase(0, begin + kOpen.size());
      state_ = State::kThinking;
    } else if (state_ == State::kStart) {
      state_ = State::kAnswer;
    }
  }
  if (state_ == State::kThinking) {
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      const size_t sure = held_.size() - beginning_of(held_, kClose);
      reasoning->append(held_, 0, sure);
      held_.erase(0, sure);
      return;
    }
    reasoning->append(held_, 0, close);
    held_.erase(0, close + kClose.size());
    state_ = State::kAnswer;
  }
  answer->append(held_);
  held_.clear();
}

void ReasoningSplitter::finish(std::string* reasoning, std::string* answer) {
  (state_ == State::kThinking ? reasoning : answer)->append(held_);
  held_.clear();
}

}  // namespace zipage::server
