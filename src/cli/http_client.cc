#include "cli/http_client.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"

namespace zipage::cli {
namespace http = boost::beast::http;

std::string BaseUrl::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (tls ? "https://" : "http://") + (v6 ? "[" + host + "]" : host) + ":" + port;
}

BaseUrl parse_base_url(const std::string& flag, const std::string& text) {
  constexpr const char* kExpected = "http://HOST[:PORT][/PREFIX] or https://...";
  BaseUrl url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    fail_invalid("{} {}: expected {}", flag, text, kExpected);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    url.prefix = std::string(rest.substr(slash));
    while (url.prefix.ends_with('/')) url.prefix.pop_back();
    rest = rest.substr(0, slash);
  }
  const bool v6 = rest.starts_with('[');
  const size_t bracket = v6 ? rest.find(']') : 0;
  if (v6 && bracket == std::string_view::npos)
    fail_invalid("{} {}: expected {}", flag, text, kExpected);
  const size_t colon = rest.find(':', bracket);
  url.host = std::string(v6 ? rest.substr(1, bracket - 1) : rest.substr(0, colon));
  url.port = url.tls ? "443" : "80";
  if (colon != std::string_view::npos) url.port = std::string(rest.substr(colon + 1));
  int number = 0;
  const char* end = url.port.data() + url.port.size();
  const auto parsed = std::from_chars(url.port.data(), end, number);
  if (url.host.empty() || parsed.ptr != end || number < 1 || number > 65535)
    fail_invalid("{} {}: expected {}", flag, text, kExpected);
  return url;
}

struct ResponseReader::Parser : http::response_parser<http::string_body> {};

ResponseReader::ResponseReader() : parser_(std::make_unique<Parser>()) {
  parser_->eager(true);
  parser_->body_limit(boost::none);
}

ResponseReader::~ResponseReader() = default;

size_t ResponseReader::feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && error_.empty() && !parser_->is_done()) {
    boost::system::error_code error;
    const size_t used =
        parser_->put(boost::asio::const_buffer(bytes.data() + taken, bytes.size() - taken), error);
    taken += used;
    if (error == http::error::need_more) break;
    if (error) error_ = "malformed HTTP response: " + error.message();
    if (used == 0) break;
  }
  return taken;
}

void ResponseReader::end_of_input() {
  if (!error_.empty() || parser_->is_done()) return;
  boost::system::error_code error;
  parser_->put_eof(error);
  if (error) error_ = "the connection was closed before the answer was complete";
}

bool ResponseReader::header_done() const { return parser_->is_header_done(); }
bool ResponseReader::done() const { return error_.empty() && parser_->is_done(); }
int ResponseReader::status() const { return static_cast<int>(parser_->get().result_int()); }
bool ResponseReader::keep_alive() const { return parser_->get().keep_alive(); }

std::string_view ResponseReader::header(std::string_view name) const {
  const auto value = parser_->get()[boost::beast::string_view(name.data(), name.size())];
  return {value.data(), value.size()};
}

std::string ResponseReader::take_body() { return std::exchange(parser_->get().body(), {}); }

}  // namespace zipage::cli
