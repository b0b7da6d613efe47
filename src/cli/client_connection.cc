#include "cli/client_connection.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <type_traits>

#include "base/error.h"

namespace zipage::cli {
namespace net = boost::asio;
using tcp = net::ip::tcp;

namespace {

constexpr auto kTuple = net::as_tuple(net::use_awaitable);

template <class Stream>
class StreamConnection : public ClientConnection {
 public:
  template <typename... Args>
  explicit StreamConnection(Args&&... args) : stream_(std::forward<Args>(args)...) {}

  net::awaitable<Error> open(const Endpoints& endpoints, int receive_buffer) override {
    tcp::socket& socket = lowest();
    Error last = net::error::host_not_found;
    for (const auto& entry : endpoints) {
      Error error;
      socket.close(error);
      socket.open(entry.endpoint().protocol(), last);
      if (last) continue;
      if (receive_buffer > 0)
        socket.set_option(net::socket_base::receive_buffer_size(receive_buffer), error);
      last = std::get<0>(co_await socket.async_connect(entry.endpoint(), kTuple));
      if (!last) break;
    }
    if (last) co_return last;
    Error ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if constexpr (!std::is_same_v<Stream, tcp::socket>)
      last = std::get<0>(co_await stream_.async_handshake(net::ssl::stream_base::client, kTuple));
    co_return last;
  }

  net::awaitable<Error> write(std::string_view bytes) override {
    co_return std::get<0>(
        co_await net::async_write(stream_, net::buffer(bytes.data(), bytes.size()), kTuple));
  }

  net::awaitable<std::pair<Error, size_t>> read(net::mutable_buffer buffer) override {
    const auto result = co_await stream_.async_read_some(buffer, kTuple);
    co_return std::pair(std::get<0>(result), std::get<1>(result));
  }

  void close() override {
    Error ignored;
    lowest().close(ignored);
  }

  Stream& stream() { return stream_; }

 private:
  tcp::socket& lowest() {
    if constexpr (std::is_same_v<Stream, tcp::socket>) {
      return stream_;
    } else {
      return stream_.next_layer();
    }
  }

  Stream stream_;
};

}  // namespace

struct Connector::Tls {
  net::ssl::context context{net::ssl::context::tls_client};
};

Connector::Connector(net::io_context& io, const LoadTarget& target) : io_(io), target_(target) {
  if (target.url.tls) {
    tls_ = std::make_unique<Tls>();
    tls_->context.set_default_verify_paths();
    if (!target.insecure) tls_->context.set_verify_mode(net::ssl::verify_peer);
  }
  boost::system::error_code error;
  tcp::resolver resolver(io);
  endpoints_ = resolver.resolve(target.url.host, target.url.port, error);
  if (error || endpoints_.empty()) {
    fail(StatusCode::kUnavailable, "{}: {}", target.url.text(),
         error ? error.message() : "no such host");
  }
}

Connector::~Connector() = default;

std::unique_ptr<ClientConnection> Connector::make() const {
  if (!tls_) return std::make_unique<StreamConnection<tcp::socket>>(io_);
  auto connection =
      std::make_unique<StreamConnection<net::ssl::stream<tcp::socket>>>(io_, tls_->context);
  auto& stream = connection->stream();
  SSL_set_tlsext_host_name(stream.native_handle(), target_.url.host.c_str());
  if (!target_.insecure)
    stream.set_verify_callback(net::ssl::host_name_verification(target_.url.host));
  return connection;
}

std::string Connector::request(const std::string& path, std::string_view body) const {
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: zipage-bench\r\nAccept: */*\r\n",
      body.empty() ? "GET" : "POST", target_.url.prefix, path, target_.url.host, target_.url.port);
  if (!target_.api_key.empty()) text += "Authorization: Bearer " + target_.api_key + "\r\n";
  if (!body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

}  // namespace zipage::cli
