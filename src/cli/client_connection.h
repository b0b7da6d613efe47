// A client's socket, plain or TLS.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cli/load_generator.h"

namespace zipage::cli {

// Thread: the io context's.
class ClientConnection {
 public:
  using Error = boost::system::error_code;
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;

  virtual ~ClientConnection() = default;
  // `receive_buffer`: bytes that the kernel keeps for us; 0: its default.
  virtual boost::asio::awaitable<Error> open(const Endpoints& endpoints, int receive_buffer) = 0;
  virtual boost::asio::awaitable<Error> write(std::string_view bytes) = 0;
  virtual boost::asio::awaitable<std::pair<Error, size_t>> read(
      boost::asio::mutable_buffer buffer) = 0;
  virtual void close() = 0;
};

// Makes connections to one target.
class Connector {
 public:
  // Throws Error that names the host when it is not known.
  Connector(boost::asio::io_context& io, const LoadTarget& target);
  ~Connector();
  std::unique_ptr<ClientConnection> make() const;
  const ClientConnection::Endpoints& endpoints() const { return endpoints_; }
  // The bytes of a request; `body` empty: GET, otherwise POST.
  std::string request(const std::string& path, std::string_view body) const;

 private:
  struct Tls;
  boost::asio::io_context& io_;
  const LoadTarget target_;
  std::unique_ptr<Tls> tls_;  // null: plain
  ClientConnection::Endpoints endpoints_;
};

}  // namespace zipage::cli
