// Splits what a model thinks from what it answers, as the text comes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zipage::server {

enum class ReasoningMode {
  kOff,     // all is answer
  kInside,  // the text begins inside <think>: the prompt opened it
  kMaybe,   // the text may begin with <think>
};

// Words that --reasoning-parser takes.
const std::vector<std::string>& reasoning_parsers();
// What a parser makes of a prompt; "" is no parser.
ReasoningMode reasoning_mode(const std::string& parser, std::string_view prompt);

class ReasoningSplitter {
 public:
  explicit ReasoningSplitter(ReasoningMode mode)
      : state_(mode == ReasoningMode::kInside  ? State::kThinking
               : mode == ReasoningMode::kMaybe ? State::kStart
                                               : State::kAnswer) {}

  // Appends what is sure of `piece` (and of pieces before) to either text.
  void push(std::string_view piece, std::string* reasoning, std::string* answer);
  // Releases what was held back.
  void finish(std::string* reasoning, std::string* answer);

 private:
  enum class State { kStart, kThinking, kAnswer };
  State state_;
  bool at_start_ = true;
  std::string held_;
};

}  // namespace zipage::server
