// Exceptions inside the library. They become a Status at the public API and at the step boundary.
#pragma once

#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>

#include "zipage/status.h"

namespace zipage {

// Bad input or a bad environment: the message is for the user.
class Error : public std::runtime_error {
 public:
  Error(StatusCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  StatusCode code() const { return code_; }
  Status status() const { return Status(code_, what()); }

 private:
  StatusCode code_;
};

template <typename... Args>
[[noreturn]] void fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

// The Status of the exception being handled. Call inside a catch block.
Status current_exception_status();

}  // namespace zipage
