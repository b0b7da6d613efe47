// Problems with exact answers, one JSON object a line.
#pragma once

#include <string>
#include <vector>

namespace zipage::cli {

struct Problem {
  std::string id, task, prompt, answer;
};

// Every line needs "prompt" and "answer"; "id" and "task" are optional. Throws Error naming file,
// line and field.
std::vector<Problem> read_problems(const std::string& path);
// Whether a completion that ended with the end token is right: it ends with \boxed{ANSWER}.
bool is_right(const Problem& problem, const std::string& completion, bool ended);

}  // namespace zipage::cli
