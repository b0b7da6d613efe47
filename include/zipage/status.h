// Errors of the public API: a Status says what went wrong, a Result<T> is a value or the Status
// that explains why there is none. Nothing in include/zipage throws.
//
//   Result<std::unique_ptr<Engine>> engine = Engine::create(options);
//   if (!engine.ok()) std::cerr << engine.status().message() << "\n";
//
// Threads: values like any other; no shared state. Implemented in src/base/error.cc, which also
// maps the library's internal exceptions to codes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace zipage {

enum class StatusCode {
  kOk = 0,
  // The caller's input is wrong. The message names the field, what came and what would be right.
  kInvalidArgument,
  // A file, tensor or model that was named does not exist.
  kNotFound,
  // A file is truncated or inconsistent.
  kDataLoss,
  // Understood, but not supported.
  kUnimplemented,
  // Memory, disk or a queue is full.
  kResourceExhausted,
  // The call does not fit the object's state.
  kFailedPrecondition,
  // Aborted by the caller.
  kCancelled,
  // A device or service is not there.
  kUnavailable,
  // A bug in Zipage.
  kInternal,
};

// The code's name in lower case with underscores, for example "invalid_argument".
const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  // Success.
  Status() = default;
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
  // Both conversions are implicit on purpose: a function returns a T or a Status.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  // The value. Undefined behaviour unless ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace zipage
