// Exceptions inside the library. Bad input throws Error; the public API and the step boundary turn
// it into a Status. A bug throws CheckFailure (base/check.h), which becomes kInternal.
//
//   if (bits > 8) fail_invalid("{}: field 'bits' is {}; expected at most 8", file, bits);
//
// The message names the file, field or flag, what came and what would be right.
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
