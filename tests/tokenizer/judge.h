// Runs judge.py, which asks HF tokenizers, llama.cpp's files and jinja2 what is right.
#pragma once

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <string>

#include "base/mmap.h"
#include "support/judge.h"

namespace zipage {

#define ZIPAGE_NEEDS_JUDGES() \
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off"

// What `judge.py task` says; files that it names lie in `folder`. Fails the test, and gives null,
// if it cannot say anything.
inline boost::json::value ask_judge(const std::string& task, const test::TempFolder& folder) {
  const std::string answer = folder.file(task + ".json");
  const std::string failure = test::run_judge("tokenizer/judge.py", folder, {task, answer});
  if (!failure.empty()) {
    ADD_FAILURE() << failure << "\nit needs the packages in tests/judges.txt";
    return nullptr;
  }
  return boost::json::parse(read_text_file(answer));
}

}  // namespace zipage
