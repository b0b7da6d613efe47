// Python programs of others as judges. ZIPAGE_PYTHON names the interpreter (default python3). A
// judge whose packages are missing fails its test; ZIPAGE_JUDGES=off skips all of them.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "support/files.h"
#include "support/source.h"

namespace zipage::test {

inline bool judges_are_off() {
  const char* value = std::getenv("ZIPAGE_JUDGES");
  return value != nullptr && std::string_view(value) == "off";
}

// Runs tests/SCRIPT with these arguments; its output goes to a log in the folder. An empty string
// when it succeeded; otherwise what it printed.
inline std::string run_judge(const std::string& script,
                             const TempFolder& folder,
                             const std::vector<std::string>& arguments) {
  const char* python = std::getenv("ZIPAGE_PYTHON");
  const std::string log = folder.file("judge.log");
  std::string command = std::string("'") + (python != nullptr ? python : "python3") + "' '" +
                        source_path("tests/" + script) + "'";
  for (const std::string& argument : arguments) command.append(" '").append(argument).append("'");
  command.append(" > '").append(log).append("' 2>&1");
  if (std::system(command.c_str()) == 0) return "";
  return command + "\n" + read_file(log);
}

// With one argument: the folder, which it fills.
inline std::string run_judge(const std::string& script, const TempFolder& folder) {
  return run_judge(script, folder, {folder.path()});
}

}  // namespace zipage::test
