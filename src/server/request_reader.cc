#include "server/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"

namespace zipage::server {
namespace http = boost::beast::http;
using boost::beast::iequals;

namespace {

// Line ends that a client may send in front of a request (RFC 9112, 2.2).
constexpr size_t kMostSkippedBytes = 8;

bool is_authority(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-._~:[]%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

}  // namespace

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(const ReadLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(limits.max_header_bytes);
  // Whoever accepts the body says how long it may be.
  parser_->body_limit(boost::none);
}

RequestReader::~RequestReader() = default;

bool RequestReader::done() const { return error_.status == 0 && accepted_ && parser_->is_done(); }

std::string_view RequestReader::body() const { return parser_->get().body(); }

size_t RequestReader::feed(std::string_view bytes) {
  size_t taken = 0;
  while (!begun_ && skipped_bytes_ < kMostSkippedBytes && bytes.substr(taken).starts_with("\r\n")) {
    taken += 2;
    skipped_bytes_ += 2;
  }
  // Half a line end, perhaps.
  if (!begun_ && bytes.substr(taken) == "\r") return taken;
  while (taken < bytes.size() && error_.status == 0 && !parser_->is_done()) {
    if (head_ready_ && !accepted_) break;
    begun_ = true;
    boost::system::error_code error;
    const size_t used =
        parser_->put(boost::asio::const_buffer(bytes.data() + taken, bytes.size() - taken), error);
    taken += used;
    if (error == http::error::need_more) break;
    if (error == http::error::header_limit) {
      error_ = {431, fmt::format("headers: more than {} bytes", limits_.max_header_bytes)};
    } else if (error == http::error::body_limit) {
      error_ = {413, fmt::format("body: more than {} bytes", most_body_bytes_)};
    } else if (error == http::error::bad_version) {
      error_ = {505, "HTTP version: expected HTTP/1.1 or HTTP/1.0"};
    } else if (error) {
      error_ = {400, fmt::format("malformed HTTP request: {}", error.message())};
    } else if (!head_ready_ && parser_->is_header_done()) {
      finish_head();
    } else if (used == 0) {
      break;
    }
  }
  return taken;
}

void RequestReader::accept_body(uint64_t most_bytes) {
  ZIPAGE_CHECK(head_ready());
  accepted_ = true;
  most_body_bytes_ = most_bytes;
  if (head_.content_length.value_or(0) > most_bytes) {
    error_ = {413, fmt::format("body: more than {} bytes", most_bytes)};
    return;
  }
  parser_->body_limit(most_bytes);
  parser_->eager(true);
}

bool RequestReader::expects_continue() const {
  return !head_.http10 && head_.has_body() && iequals(head_.header("expect"), "100-continue");
}

// What beast reads without a word although it means something else to a proxy in front of us, or
// that has to be answered: two readers who differ about where a request ends let a third one's
// requests pass as somebody else's.
void RequestReader::check_framing() {
  size_t hosts = 0, encodings = 0;
  for (const Header& header : head_.headers) {
    if (header.name == "host") ++hosts;
    if (header.name == "transfer-encoding") ++encodings;
  }
  const std::string_view encoding = head_.header("transfer-encoding");
  if (encodings > 0 && head_.http10) {
    error_ = {400, "Transfer-Encoding: not with HTTP/1.0"};
  } else if (encodings > 0 && head_.content_length) {
    error_ = {400, "Transfer-Encoding: not together with Content-Length"};
  } else if (encodings > 1 || (encodings == 1 && !iequals(encoding, "chunked"))) {
    error_ = {501, "Transfer-Encoding: expected chunked alone"};
  } else if (hosts > 1 || (hosts == 0 && !head_.http10)) {
    error_ = {400, fmt::format("Host: expected one such header, found {}", hosts)};
  } else if (!is_authority(head_.host)) {
    error_ = {400, "Host: expected a name or an address, and perhaps a port"};
  } else if (const std::string_view expect = head_.header("expect");
             !head_.http10 && !expect.empty() && !iequals(expect, "100-continue")) {
    error_ = {417, "Expect: expected 100-continue"};
  }
}

// A target is a path, or (as proxies are sent) a whole URL, or "*" for OPTIONS.
void RequestReader::read_target() {
  const auto& message = parser_->get();
  std::string_view target(message.target().data(), message.target().size());
  head_.host = std::string(head_.header("host"));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    head_.host = std::string(authority);
    target.remove_prefix(authority.size());
    if (authority.empty()) error_ = {400, "request target: a URL without a host"};
    if (target.empty() || target[0] == '?') head_.path.push_back('/');
    break;
  }
  const size_t mark = target.find('?');
  head_.path += target.substr(0, mark);
  if (mark != std::string_view::npos) head_.query = std::string(target.substr(mark + 1));
  const bool whole_server = head_.path == "*" && head_.method == "OPTIONS";
  if (error_.status == 0 && !head_.path.starts_with('/') && !whole_server)
    error_ = {400, "request target: expected a path that begins with / or a URL"};
}

void RequestReader::finish_head() {
  head_ready_ = true;
  const auto& message = parser_->get();
  head_.method = std::string(message.method_string());
  head_.keep_alive = message.keep_alive();
  head_.http10 = message.version() < 11;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    head_.headers.push_back({std::move(name), std::string(field.value())});
  }
  head_.chunked = message.chunked();
  if (const auto length = parser_->content_length()) head_.content_length = *length;
  read_target();
  if (error_.status == 0) check_framing();
}

HttpRequest RequestReader::take() {
  HttpRequest request = std::move(head_);
  request.body = std::move(parser_->get().body());
  return request;
}

}  // namespace zipage::server
