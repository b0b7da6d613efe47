// What went wrong, for callers of the public API. See docs/engine-contract.md.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace zipage {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // the caller's input is wrong; the message names the field and what is right
  kNotFound,           // a file, tensor or model that was named does not exist
  kDataLoss,           // a file is truncated or inconsistent
  kUnimplemented,      // understood, and not supported
  kResourceExhausted,  // memory, disk or a queue is full
  kFailedPrecondition,  // the call does not fit the object's state
  kCancelled,           // aborted by the caller
  kUnavailable,         // a device or service is not there
  kInternal,            // our bug
};

// The code's name in lower case with underscores, for example "invalid_argument".
const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value, or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(runtime/explicit)
  Result(Status status)
      : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT(runtime/explicit)

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  // Undefined unless ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace zipage
