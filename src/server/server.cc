#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <list>
#include <mutex>
#include <openssl/ssl.h>
#include <unordered_map>

#include "base/error.h"
#include "base/machine.h"
#include "server/auth.h"
#include "server/connection.h"

namespace zipage::server {
namespace net = boost::asio;
using tcp = net::ip::tcp;

namespace {

net::ssl::context tls_context(const ServerOptions& options) {
  net::ssl::context context(net::ssl::context::tls_server);
  boost::system::error_code error;
  context.set_options(net::ssl::context::default_workarounds | net::ssl::context::no_sslv2 |
                      net::ssl::context::no_sslv3 | net::ssl::context::no_tlsv1 |
                      net::ssl::context::no_tlsv1_1);
  context.use_certificate_chain_file(options.ssl_certfile, error);
  if (error) fail_invalid("--ssl-certfile {}: {}", options.ssl_certfile, error.message());
  context.use_private_key_file(options.ssl_keyfile, net::ssl::context::pem, error);
  if (error) fail_invalid("--ssl-keyfile {}: {}", options.ssl_keyfile, error.message());
  if (SSL_CTX_check_private_key(context.native_handle()) != 1) {
    fail_invalid("--ssl-keyfile {}: does not belong to --ssl-certfile {}", options.ssl_keyfile,
                 options.ssl_certfile);
  }
  if (!options.ssl_ca_certs.empty()) {
    context.load_verify_file(options.ssl_ca_certs, error);
    if (error) fail_invalid("--ssl-ca-certs {}: {}", options.ssl_ca_certs, error.message());
  }
  if (options.ssl_require_client_cert) {
    if (options.ssl_ca_certs.empty())
      fail_invalid("--ssl-require-client-cert: needs --ssl-ca-certs to check them with");
    context.set_verify_mode(net::ssl::verify_peer | net::ssl::verify_fail_if_no_peer_cert);
  }
  return context;
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(ServerOptions options)
      : options_(std::move(options)),
        ticker_(io_),
        signals_(io_),
        service_(options_,
                 [this](std::function<void()> task) { net::post(io_, std::move(task)); }) {
    if (options_.cors.allow_credentials && allows_any_origin(options_.cors)) {
      fail_invalid(
          "--allow-credentials: not with --allowed-origins '*', which would let any page act with "
          "its visitor's credentials; name the origins");
    }
    if (options_.ssl_certfile.empty() != options_.ssl_keyfile.empty())
      fail_invalid("--ssl-certfile, --ssl-keyfile: one without the other");
    if (!options_.ssl_certfile.empty()) tls_.emplace(tls_context(options_));
    listen();
    service_.start_workers(usable_cpus() > 2 ? 2 : 1, options_.limits.max_waiting_bodies);
    for (tcp::acceptor& acceptor : acceptors_)
      net::co_spawn(io_, accept_loop(acceptor), net::detached);
    tick();
  }

  uint16_t port() const { return acceptors_.front().local_endpoint().port(); }
  Service& service() { return service_; }
  void run();
  void set_engine(Engine& engine) {
    net::post(io_, [this, &engine] { service_.set_engine(engine); });
  }
  void drain() {
    net::post(io_, [this] { begin_drain(); });
  }
  void stop() {
    net::post(io_, [this] { stop_now(); });
  }
  bool stopped_early() const { return stopped_early_; }

  void handle_signals() {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    wait_for_signal();
  }

 private:
  void listen();
  tcp::acceptor bound(const tcp::endpoint& endpoint, bool one_family);
  bool bind_all(const std::vector<tcp::endpoint>& endpoints);
  net::awaitable<void> accept_loop(tcp::acceptor& acceptor);
  bool accept_waiting();
  void admit(tcp::socket socket);
  template <class Connection>
  void start(std::shared_ptr<Connection> connection);
  void wait_for_signal();
  void begin_drain();
  void stop_now();
  void tick();
  bool look_around();
  bool is_drained(ConnectionBase::Clock::time_point now);
  bool ends_for_engine(ConnectionBase::Clock::time_point now);

  const ServerOptions options_;
  net::io_context io_{1};
  std::optional<net::ssl::context> tls_;
  // One an address that --host stands for.
  std::list<tcp::acceptor> acceptors_;
  net::steady_timer ticker_;
  net::signal_set signals_;
  Service service_;
  std::unordered_map<ConnectionBase*, std::shared_ptr<ConnectionBase>> connections_;
  ConnectionBase::Clock::time_point drained_ = ConnectionBase::Clock::time_point::max();
  ConnectionBase::Clock::time_point failed_ = ConnectionBase::Clock::time_point::max();
  bool stopped_early_ = false;
};

// A bug that throws outside a request's handling ends what it touched, and the server goes on.
void Server::Impl::run() {
  while (true) {
    try {
      io_.run();
      break;
    } catch (const std::exception& error) {
      service_.log("error", fmt::format("the server's io thread: {}", error.what()));
    }
  }
  service_.stop_workers();
}

tcp::acceptor Server::Impl::bound(const tcp::endpoint& endpoint, bool one_family) {
  boost::system::error_code error;
  tcp::acceptor acceptor(io_);
  acceptor.open(endpoint.protocol(), error);
  if (!error && one_family && endpoint.address().is_v6())
    acceptor.set_option(net::ip::v6_only(true), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(4096, error);
  if (error) throw boost::system::system_error(error);
  return acceptor;
}

// Binds every address that this machine has, all to one port. False: the port that the first was
// given is taken on another.
bool Server::Impl::bind_all(const std::vector<tcp::endpoint>& endpoints) {
  acceptors_.clear();
  boost::system::error_code missing;
  for (tcp::endpoint endpoint : endpoints) {
    if (!acceptors_.empty()) endpoint.port(port());
    try {
      acceptors_.push_back(bound(endpoint, endpoints.size() > 1));
    } catch (const boost::system::system_error& failure) {
      const boost::system::error_code error = failure.code();
      const bool taken = error == net::error::address_in_use;
      if (taken && options_.port == 0 && !acceptors_.empty()) return false;
      // Without IPv6 in the kernel "localhost" is 127.0.0.1 alone.
      missing = error;
      if (!taken && endpoints.size() > 1) continue;
      fail(StatusCode::kUnavailable, "--host {} --port {}: {}", options_.host, options_.port,
           error.message());
    }
  }
  if (acceptors_.empty()) {
    fail(StatusCode::kUnavailable, "--host {} --port {}: {}", options_.host, options_.port,
         missing.message());
  }
  return true;
}

void Server::Impl::listen() {
  boost::system::error_code error;
  tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  if (error || found.empty())
    fail_invalid("--host {}: {}", options_.host, error ? error.message() : "no such address");
  std::vector<tcp::endpoint> endpoints;
  // Clients take either of its addresses first, whatever /etc/hosts of this machine says.
  if (options_.host == "localhost") {
    endpoints = {{net::ip::address_v4::loopback(), options_.port},
                 {net::ip::address_v6::loopback(), options_.port}};
  }
  for (const auto& entry : found) {
    const tcp::endpoint endpoint = entry.endpoint();
    if (std::find(endpoints.begin(), endpoints.end(), endpoint) == endpoints.end())
      endpoints.push_back(endpoint);
  }
  for (int tries = 0; !bind_all(endpoints); ++tries) {
    if (tries > 20) {
      fail(StatusCode::kUnavailable, "--host {}: no port is free on all of its addresses",
           options_.host);
    }
  }
}

net::awaitable<void> Server::Impl::accept_loop(tcp::acceptor& acceptor) {
  while (acceptor.is_open()) {
    auto result = co_await acceptor.async_accept(net::as_tuple(net::use_awaitable));
    const boost::system::error_code error = std::get<0>(result);
    if (error == net::error::operation_aborted || error == net::error::bad_descriptor) co_return;
    std::string failure = error ? error.message() : "";
    try {
      if (!error) admit(std::move(std::get<1>(result)));
    } catch (const std::exception& exception) {
      failure = exception.what();
    }
    if (failure.empty()) continue;
    // Out of file descriptors: the next try would fail at once.
    service_.log("warning", fmt::format("accept: {}", failure));
    net::steady_timer pause(io_, std::chrono::milliseconds(100));
    co_await pause.async_wait(net::as_tuple(net::use_awaitable));
  }
}

// Whether a client has connected whom the accept loop has not seen yet; it is admitted.
bool Server::Impl::accept_waiting() {
  for (tcp::acceptor& acceptor : acceptors_) {
    boost::system::error_code error;
    acceptor.non_blocking(true, error);
    tcp::socket socket(io_);
    acceptor.accept(socket, error);
    if (error) continue;
    admit(std::move(socket));
    return true;
  }
  return false;
}

void Server::Impl::admit(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (connections_.size() >= options_.limits.max_connections) {
    // A plain answer that fits in the socket's buffer; for TLS there is none without a handshake.
    Turn turn({.keep_alive = false}, [] {});
    service_.handle_unreadable({503, "too many connections"},
                               std::shared_ptr<Turn>(&turn, [](Turn*) {}));
    const std::string answer = turn.take_output();
    socket.non_blocking(true, ignored);
    if (!tls_) socket.write_some(net::buffer(answer), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    return;
  }
  if (tls_) {
    using Stream = net::ssl::stream<tcp::socket>;
    start(std::make_shared<Connection<Stream>>(Stream(std::move(socket), *tls_), service_));
  } else {
    start(std::make_shared<Connection<tcp::socket>>(std::move(socket), service_));
  }
}

template <class Connection>
void Server::Impl::start(std::shared_ptr<Connection> connection) {
  connections_.emplace(connection.get(), connection);
  net::co_spawn(io_, connection->serve(), [this, raw = connection.get()](std::exception_ptr error) {
    if (error) {
      service_.log("error", "a connection ended with an exception");
      raw->close();
    }
    connections_.erase(raw);
  });
}

// Whether a drain has nothing left to wait for.
bool Server::Impl::is_drained(ConnectionBase::Clock::time_point now) {
  if (!service_.draining() || service_.num_generations() > 0) return false;
  // The last answers are still being written; clients that go on asking must not keep us.
  if (drained_ == ConnectionBase::Clock::time_point::max()) drained_ = now;
  if (now - drained_ > std::chrono::seconds(5)) return true;
  // Who has connected before the end gets an answer.
  return connections_.empty() && !accept_waiting();
}

// Whether the engine has failed, and everybody who waited for it has been told.
bool Server::Impl::ends_for_engine(ConnectionBase::Clock::time_point now) {
  service_.check_engine();
  if (service_.engine_failure().ok() || !options_.exit_on_engine_error) return false;
  if (failed_ == ConnectionBase::Clock::time_point::max()) failed_ = now;
  const auto since = now - failed_;
  return since > std::chrono::seconds(3) ||
         (since > std::chrono::milliseconds(300) && service_.num_generations() == 0);
}

// What time alone brings about. True: run() ends.
bool Server::Impl::look_around() {
  const auto now = ConnectionBase::Clock::now();
  std::vector<std::shared_ptr<ConnectionBase>> all;
  all.reserve(connections_.size());
  for (const auto& [raw, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) {
    connection->check(now);
    if (service_.draining()) connection->close_if_idle(now);
  }
  return ends_for_engine(now) || is_drained(now);
}

void Server::Impl::tick() {
  ticker_.expires_after(std::chrono::milliseconds(100));
  ticker_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    // First: whatever is thrown below, there is a next time.
    tick();
    if (look_around()) io_.stop();
  });
}

void Server::Impl::wait_for_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    if (service_.draining() || service_.loading()) {
      stop_now();
      return;
    }
    service_.log("info", fmt::format("signal {}: finishing {} requests; a second signal stops now",
                                     number, service_.num_generations()));
    begin_drain();
    wait_for_signal();
  });
}

void Server::Impl::begin_drain() {
  if (!service_.draining()) service_.drain();
}

void Server::Impl::stop_now() {
  stopped_early_ = service_.num_generations() > 0 || service_.loading();
  service_.abort_all();
  io_.stop();
}

Status Server::engine_failure() const { return impl_->service().engine_failure(); }

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;
uint16_t Server::port() const { return impl_->port(); }
std::function<void()> Server::step_done() {
  return [service = &impl_->service()] { service->step_done(); };
}
void Server::set_engine(Engine& engine) { impl_->set_engine(engine); }
void Server::run() { impl_->run(); }
void Server::handle_signals() { impl_->handle_signals(); }
void Server::drain() { impl_->drain(); }
void Server::stop() { impl_->stop(); }
bool Server::stopped_early() const { return impl_->stopped_early(); }

}  // namespace zipage::server
