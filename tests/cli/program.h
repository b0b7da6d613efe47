// Runs the zipage program as a user does.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

#include "support/source.h"

namespace zipage::cli {

inline const std::string kModel = test::source_path("models/reasoner-16m");

struct Outcome {
  int code = -1;       // -1: ended by a signal
  std::string output;  // stdout and stderr
};

inline Outcome run_shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen(("{ " + command + "; } 2>&1 </dev/null").c_str(), "r");
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

// The program with these arguments. `before`: assignments of environment variables.
inline Outcome run(const std::string& arguments, const std::string& before = "") {
  return run_shell(before + " " + ZIPAGE_PROGRAM + " " + arguments);
}

}  // namespace zipage::cli
