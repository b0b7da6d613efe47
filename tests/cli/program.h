<<<<<<< HEAD
// Runs the zipage program.
=======
// Runs the zipage program as a user does.
>>>>>>> 653045588b341b6e93bfb1e5b3fc3c427c928a0e
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace zipage::cli {

<<<<<<< HEAD
=======
inline const std::string kModel = std::string(ZIPAGE_SOURCE_DIR) + "/models/reasoner-16m";

>>>>>>> 653045588b341b6e93bfb1e5b3fc3c427c928a0e
struct Outcome {
  int code = -1;       // -1: ended by a signal
  std::string output;  // stdout and stderr
};

<<<<<<< HEAD
inline Outcome run_shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen(("{ " + command + "; } 2>&1 </dev/null").c_str(), "r");
=======
// `before`: assignments of environment variables.
inline Outcome run(const std::string& arguments, const std::string& before = "") {
  Outcome outcome;
  const std::string command = before + " " + ZIPAGE_PROGRAM + " " + arguments + " 2>&1 </dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
>>>>>>> 653045588b341b6e93bfb1e5b3fc3c427c928a0e
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

<<<<<<< HEAD
// The program with these arguments.
inline Outcome run(const std::string& arguments) {
  return run_shell(std::string(ZIPAGE_PROGRAM) + " " + arguments);
}

=======
>>>>>>> 653045588b341b6e93bfb1e5b3fc3c427c928a0e
}  // namespace zipage::cli
