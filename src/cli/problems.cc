#include "cli/problems.h"

#include <boost/json.hpp>

#include "base/error.h"
#include "cli/json_lines.h"

namespace zipage::cli {

std::vector<Problem> read_problems(const std::string& path) {
  std::vector<Problem> problems;
  read_json_lines(path, [&](const JsonLine& line) {
    Problem p;
    p.prompt = line.text("prompt");
    p.answer = line.text("answer");
    p.id = line.text_or("id", std::to_string(line.number()));
    p.task = line.text_or("task", "all");
    if (p.prompt.empty()) line.fail_field("prompt", "empty");
    problems.push_back(std::move(p));
  });
  if (problems.empty()) fail_invalid("{}: no problems in the file", path);
  return problems;
}

bool is_right(const Problem& problem, const std::string& completion, bool ended) {
  return ended && completion.ends_with("\\boxed{" + problem.answer + "}");
}

}  // namespace zipage::cli
