// Runs judge.py, which asks HF tokenizers, llama.cpp's files and jinja2 what is right.
#pragma once

#include <boost/json.hpp>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "base/mmap.h"
#include "support/files.h"

namespace zipage {

// Environment ZIPAGE_JUDGES=off skips the tests that need Python packages and a package registry.
inline bool judges_are_off() {
  const char* value = std::getenv("ZIPAGE_JUDGES");
  return value != nullptr && std::string(value) == "off";
}

#define ZIPAGE_NEEDS_JUDGES() \
  if (judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off"

// What `judge.py task` says; files that it names lie in `folder`. Fails the test, and gives null,
// if it cannot say anything.
inline boost::json::value ask_judge(const std::string& task, const test::TempFolder& folder) {
  const char* python = std::getenv("ZIPAGE_PYTHON");
  const std::string answer = folder.file(task + ".json");
  const std::string command = "'" + std::string(python != nullptr ? python : "python3") + "' '" +
                              ZIPAGE_SOURCE_DIR "/tests/tokenizer/judge.py' " + task + " '" +
                              answer + "'";
  const int code = std::system(command.c_str());
  if (code != 0) {
    ADD_FAILURE()
        << "the judge failed with " << code << ": " << command
        << "\nit needs the packages in tests/judges.txt; ZIPAGE_PYTHON names the interpreter";
    return nullptr;
  }
  return boost::json::parse(read_text_file(answer));
}

}  // namespace zipage
