// Expectations on what a user is told.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/error.h"

namespace zipage::test {

// `action` throws an Error: one line, of the given code, that holds each of the words.
template <typename Action>
void expect_error(StatusCode code, const std::vector<std::string>& words, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with: " << testing::PrintToString(words);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
    for (const std::string& word : words) EXPECT_THAT(message, testing::HasSubstr(word));
  }
}

}  // namespace zipage::test
