// Errors as the OpenAI API words them: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "zipage/status.h"

#include "server/http.h"

namespace zipage::server {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field at fault; empty for none.
  ApiError(int status, std::string param, const std::string& message, int64_t retry_after = 0)
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        retry_after_(retry_after) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  // Seconds; 0: not known.
  int64_t retry_after() const { return retry_after_; }
  // Of the answer, besides those that its status needs.
  const std::vector<Header>& headers() const { return headers_; }
  ApiError&& with_header(std::string name, std::string value) && {
    headers_.push_back({std::move(name), std::move(value)});
    return std::move(*this);
  }

 private:
  int status_;
  std::string param_;
  int64_t retry_after_;
  std::vector<Header> headers_;
};

template <typename... Args>
[[noreturn]] void fail_field(const std::string& field,
                             fmt::format_string<Args...> format,
                             Args&&... args) {
  throw ApiError(400, field, field + ": " + fmt::format(format, std::forward<Args>(args)...));
}

// "429" -> "RateLimitError" and so on.
const char* error_type(int status);

// 429 and 503 say when to ask again: after `retry_after` seconds, 0: after one.
HttpResponse error_response(int status,
                            const std::string& message,
                            const std::string& param = {},
                            int64_t retry_after = 0);
// The "error" object alone, for an event of a stream.
std::string error_json(int status, const std::string& message, const std::string& param = {});

// `message` without places in our sources ("src/engine/engine.cc:12: "), which say nothing to a
// client.
std::string without_source_places(const std::string& message);

// The answer to an engine's refusal or failure. Of one that is our bug (500) the client is told that
// the log has the reason; the caller writes it there.
HttpResponse engine_error(const Status& error);
// What an engine's refusal is in HTTP.
int http_status(StatusCode code);
// The field that an engine's message begins with ("temperature -1: expected ..."); else "".
std::string field_of(const std::string& message);

}  // namespace zipage::server
