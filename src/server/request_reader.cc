#include "server/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <fmt/format.h>
#include <utility>

namespace zipage::server {
namespace http = boost::beast::http;
using boost::beast::iequals;

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(const ReadLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->eager(true);
  parser_->header_limit(limits.max_header_bytes);
  parser_->body_limit(limits.max_body_bytes);
}

RequestReader::~RequestReader() = default;

bool RequestReader::done() const { return error_.status == 0 && parser_->is_done(); }
bool RequestReader::header_done() const { return parser_->is_header_done(); }

size_t RequestReader::feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && error_.status == 0 && !parser_->is_done()) {
    boost::system::error_code error;
    const size_t used =
        parser_->put(boost::asio::const_buffer(bytes.data() + taken, bytes.size() - taken), error);
    taken += used;
    if (error == http::error::need_more) break;
    if (error == http::error::header_limit) {
      error_ = {431, fmt::format("headers: more than {} bytes", limits_.max_header_bytes)};
    } else if (error == http::error::body_limit) {
      error_ = {413, fmt::format("body: more than {} bytes", limits_.max_body_bytes)};
    } else if (error == http::error::bad_version) {
      error_ = {505, "HTTP version: expected HTTP/1.1 or HTTP/1.0"};
    } else if (error) {
      error_ = {400, fmt::format("malformed HTTP request: {}", error.message())};
    } else if (used == 0) {
      break;
    }
  }
  return taken;
}

bool RequestReader::take_expects_continue() {
  if (continue_taken_ || !header_done() || done()) return false;
  continue_taken_ = true;
  return iequals(parser_->get()[http::field::expect], "100-continue");
}

HttpRequest RequestReader::take() {
  auto message = parser_->release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const size_t mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  request.keep_alive = message.keep_alive();
  request.http10 = message.version() < 11;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.push_back({std::move(name), std::string(field.value())});
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace zipage::server
