#include "server/turn.h"

#include <ctime>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"

namespace zipage::server {
namespace {

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return std::string(text, length);
}

// A header's value may hold a client's text: nothing in it may end the line.
std::string_view one_line(std::string_view value) {
  return value.substr(0, value.find_first_of("\r\n"));
}

}  // namespace

const char* reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

Turn::Turn(TurnOptions options, std::function<void()> wake)
    : options_(options), wake_(std::move(wake)) {}

void Turn::add_header(std::string name, std::string value) {
  headers_.push_back({std::move(name), std::move(value)});
}

void Turn::write_head(const HttpResponse& response, bool streamed) {
  started_ = true;
  status_ = response.status;
  chunked_ = streamed && !options_.http10;
  if (streamed && options_.http10) options_.keep_alive = false;
  auto out = std::back_inserter(output_);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {}\r\nServer: zipage\r\n", response.status,
                 reason_phrase(response.status), http_date());
  if (!response.content_type.empty() && response.status != 204)
    fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  if (chunked_) {
    output_ += "Transfer-Encoding: chunked\r\n";
  } else if (!streamed && response.status != 204) {
    fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  }
  if (!options_.keep_alive) output_ += "Connection: close\r\n";
  if (options_.keep_alive && options_.http10) output_ += "Connection: keep-alive\r\n";
  for (const std::vector<Header>& list : {std::cref(response.headers), std::cref(headers_)}) {
    for (const Header& header : list)
      fmt::format_to(out, "{}: {}\r\n", header.name, one_line(header.value));
  }
  output_ += "\r\n";
}

void Turn::respond(HttpResponse response) {
  if (abandoned_) return;
  ZIPAGE_CHECK(!started_);
  write_head(response, false);
  if (!options_.head_only && response.status != 204) output_ += response.body;
  end();
}

void Turn::fail(HttpResponse response) {
  if (started_) {
    abandon();
  } else {
    respond(std::move(response));
  }
}

void Turn::begin_stream(HttpResponse head) {
  if (abandoned_) return;
  ZIPAGE_CHECK(!started_);
  write_head(head, true);
  wake_();
}

// Looks at what earlier steps left: a step's own chunks may be many and are all kept.
bool Turn::ready() {
  if (output_.size() > options_.max_buffered_bytes) abandon();
  return !abandoned_ && !finished_;
}

bool Turn::write(std::string_view bytes) {
  if (abandoned_ || finished_) return false;
  if (bytes.empty() || options_.head_only) return true;
  if (chunked_) {
    fmt::format_to(std::back_inserter(output_), "{:x}\r\n", bytes.size());
    output_ += bytes;
    output_ += "\r\n";
  } else {
    output_ += bytes;
  }
  wake_();
  return true;
}

void Turn::end_stream() {
  if (abandoned_ || finished_) return;
  if (chunked_ && !options_.head_only) output_ += "0\r\n\r\n";
  end();
}

void Turn::end() {
  finished_ = true;
  gone_ = nullptr;
  if (auto done = std::exchange(done_, nullptr)) done(status_);
  wake_();
}

void Turn::abandon() {
  if (abandoned_ || finished_) return;
  abandoned_ = true;
  options_.keep_alive = false;
  output_.clear();
  if (auto gone = std::exchange(gone_, nullptr)) gone();
  // 499: the client closed the request, as nginx logs it.
  if (auto done = std::exchange(done_, nullptr)) done(499);
  wake_();
}

std::string Turn::take_output() { return std::exchange(output_, {}); }

}  // namespace zipage::server
