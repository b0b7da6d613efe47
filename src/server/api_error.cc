#include "server/api_error.h"

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>

#include "server/answer.h"

namespace zipage::server {

const char* error_type(int status) {
  switch (status) {
    case 403:
      return "PermissionDeniedError";
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 429:
      return "RateLimitError";
    case 503:
      return "unavailable_error";
    case 500:
      return "InternalServerError";
    default:
      return status >= 500 ? "InternalServerError" : "BadRequestError";
  }
}

std::string error_json(int status, const std::string& message, const std::string& param) {
  boost::json::object error{{"message", lossy_text(message)}, {"type", error_type(status)}};
  error["param"] =
      param.empty() ? boost::json::value(nullptr) : boost::json::value(lossy_text(param));
  error["code"] = status;
  return boost::json::serialize(boost::json::object{{"error", std::move(error)}});
}

HttpResponse error_response(int status,
                            const std::string& message,
                            const std::string& param,
                            int64_t retry_after) {
  HttpResponse response;
  response.status = status;
  response.body = error_json(status, message, param);
  if (status == 429 || status == 503) {
    response.headers.push_back({"Retry-After", std::to_string(std::max<int64_t>(retry_after, 1))});
  }
  if (status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

std::string without_source_places(const std::string& message) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kInPath =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
  std::string text = message;
  for (const std::string_view end : {".cc:", ".cu:", ".h:", ".cuh:", ".cpp:"}) {
    for (size_t at = text.find(end); at != std::string::npos; at = text.find(end, at)) {
      const size_t line = at + end.size();
      size_t after = std::min(text.find_first_not_of(kDigits, line), text.size());
      if (after == line) {
        at = line;
        continue;
      }
      if (text.compare(after, 1, ":") == 0) ++after;
      if (text.compare(after, 1, " ") == 0) ++after;
      const size_t before = text.find_last_not_of(kInPath, at);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      text.erase(begin, after - begin);
      at = begin;
    }
  }
  return text;
}

HttpResponse engine_error(const Status& error) {
  const int status = http_status(error.code());
  if (status == 500)
    return error_response(status, "internal error; the server's log has the reason");
  const std::string message = without_source_places(error.message());
  return error_response(status, message, field_of(message));
}

int http_status(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnavailable:
    case StatusCode::kFailedPrecondition:
      return 503;
    default:
      return 500;
  }
}

std::string field_of(const std::string& message) {
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  if (end == std::string::npos || end == 0 || (message[end] != ':' && message[end] != ' '))
    return {};
  const std::string word = message.substr(0, end);
  return message[end] == ':' || word.find('_') != std::string::npos || word == "n" ||
                 word == "temperature" || word == "logprobs" || word == "stop"
             ? word
             : std::string();
}

}  // namespace zipage::server
