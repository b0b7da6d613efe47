#include "server/api_error.h"

#include <algorithm>
#include <boost/json.hpp>

#include "server/answer.h"

namespace zipage::server {

const char* error_type(int status) {
  switch (status) {
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
