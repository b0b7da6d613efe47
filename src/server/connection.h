// One client's socket: reads requests one after the other, writes their answers in order.
//
// A request is refused as soon as its headers are there where they say that it must be, and its body
// as soon as it holds too much; what a refused client still sends is taken slowly and thrown away.
// While an answer is on its way the socket is read too: that is how a client that went away is
// noticed, and how a pipelined request gets into the buffer.
#pragma once

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/fields.h"
#include "server/request_reader.h"
#include "server/service.h"
#include "server/turn.h"

namespace zipage::server {

// What the server needs to know of a connection. Thread: the io thread.
class ConnectionBase {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~ConnectionBase() = default;
  // Now, whatever is on its way.
  virtual void close() = 0;
  // Its deadlines.
  virtual void check(Clock::time_point now) = 0;
  // While the server shuts down: ends when nothing of a request has come. A connection that has not
  // had a request yet is given a second, as its first one may be on its way.
  virtual void close_if_idle(Clock::time_point now) = 0;
};

template <class Stream>
class Connection : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  static constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);
  // Bytes read beyond the request in progress.
  static constexpr size_t kMaxAhead = 64 << 10;
  static constexpr size_t kSmallRead = 8 << 10, kLargeRead = 64 << 10;
  static constexpr bool kTls = !std::is_same_v<Stream, boost::asio::ip::tcp::socket>;

 public:
  Connection(Stream stream, Service& service)
      : stream_(std::move(stream)),
        service_(service),
        limits_(service.options().limits),
        signal_(stream_.get_executor(), Clock::time_point::max()) {
    boost::system::error_code ignored;
    if constexpr (!kTls) stream_.non_blocking(true, ignored);
  }

  // Until the connection is closed.
  Awaitable<void> serve();

  void close() override {
    closed_ = true;
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
    signal_.cancel();
  }
  void check(Clock::time_point now) override {
    if (now < deadline_) return;
    deadline_ = Clock::time_point::max();
    if (reading_request_ && !timed_out_) {
      // A 408 is owed.
      timed_out_ = true;
      signal_.cancel();
    } else if (is_idle() && !ending_) {
      end();
    } else {
      close();
    }
  }
  void close_if_idle(Clock::time_point now) override {
    if (!is_idle() || ending_) return;
    if (served_ || now - opened_ > std::chrono::seconds(1)) end();
  }

 private:
  boost::asio::ip::tcp::socket& tcp_socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }
  bool is_idle() {
    boost::system::error_code ignored;
    return !turn_ && input_.empty() && !reading_request_ &&
           stream_.lowest_layer().available(ignored) == 0;
  }
  // In good order: serve() says good-bye where the protocol has a word for it.
  void end() {
    ending_ = true;
    set_deadline(std::chrono::seconds(2));
    signal_.cancel();
  }
  void set_deadline(std::chrono::seconds after) { deadline_ = Clock::now() + after; }
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void start_read();
  Awaitable<void> wait() {
    co_await signal_.async_wait(kTuple);
    signal_.expires_at(Clock::time_point::max());
  }
  // What is kept of a request while its body comes.
  struct Incoming {
    bool head_seen = false, continue_owed = false;
    std::shared_ptr<BodyBudget::Lease> lease;
    std::optional<JsonScan> scan;
    size_t scanned_bytes = 0;
  };

  Awaitable<bool> read_request(RequestReader& reader);
  void take_input(RequestReader& reader);
  void begin_body(RequestReader& reader);
  void check_body(RequestReader& reader);
  Awaitable<bool> write_all(std::string_view bytes);
  Awaitable<bool> write_turn();
  Awaitable<void> shut_down_tls();
  Awaitable<void> linger();
  std::shared_ptr<Turn> new_turn(const HttpRequest& request);

  Stream stream_;
  Service& service_;
  const Limits& limits_;
  // Cancelled when there is something to look at.
  boost::asio::steady_timer signal_;
  const Clock::time_point opened_ = Clock::now();
  Clock::time_point deadline_ = Clock::time_point::max();
  std::vector<char> chunk_ = std::vector<char>(kSmallRead);
  // Read and not taken.
  std::string input_;
  Incoming incoming_;
  std::shared_ptr<Turn> turn_;
  bool read_pending_ = false, end_of_input_ = false, closed_ = false;
  bool reading_request_ = false, timed_out_ = false, ending_ = false, served_ = false;
};

template <class Stream>
void Connection<Stream>::start_read() {
  if (read_pending_ || end_of_input_ || closed_) return;
  read_pending_ = true;
  stream_.async_read_some(
      boost::asio::buffer(chunk_),
      [self = this->shared_from_this()](const boost::system::error_code& error, size_t size) {
        self->read_pending_ = false;
        if (error) {
          self->end_of_input_ = true;
          // After a half close too: a client that waits keeps its side open.
          if (self->turn_) self->turn_->abandon();
        } else {
          self->input_.append(self->chunk_.data(), size);
          if (self->turn_ && self->input_.size() < kMaxAhead) self->start_read();
        }
        self->signal_.cancel();
      });
}

// The headers are there, and nothing in them is against the request.
template <class Stream>
void Connection<Stream>::begin_body(RequestReader& reader) {
  const HttpRequest& head = reader.head();
  reader.accept_body(service_.max_body_bytes());
  if (!head.has_body()) return;
  incoming_.lease = std::make_shared<BodyBudget::Lease>(service_.body_budget());
  if (head.method == "POST") incoming_.scan.emplace(service_.count_limits());
  incoming_.continue_owed = reader.expects_continue();
  if (head.chunked || head.content_length.value_or(0) > kLargeRead) chunk_.resize(kLargeRead);
}

// What has come of the body: does it fit, and is it within the limits?
template <class Stream>
void Connection<Stream>::check_body(RequestReader& reader) {
  if (!incoming_.lease) return;
  const std::string_view body = reader.body();
  if (!body.empty()) incoming_.continue_owed = false;
  std::optional<HttpResponse> refusal;
  if (!incoming_.lease->grow_to(body.size())) {
    refusal = error_response(503, "the server holds as many request bodies as it may");
  } else if (incoming_.scan && !incoming_.scan->feed(body.substr(incoming_.scanned_bytes))) {
    const ApiError error = scan_failure(*incoming_.scan);
    refusal = error_response(error.status(), error.what(), error.param());
  }
  incoming_.scanned_bytes = body.size();
  if (!refusal) return;
  turn_ = new_turn(reader.head());
  service_.refuse_body(reader.head(), turn_, *refusal);
}

// Sets turn_ when the request is answered already.
template <class Stream>
void Connection<Stream>::take_input(RequestReader& reader) {
  input_.erase(0, reader.feed(input_));
  if (reader.head_ready() && !incoming_.head_seen) {
    incoming_.head_seen = true;
    const auto turn = new_turn(reader.head());
    if (service_.refuse_head(reader.head(), turn)) {
      turn_ = turn;
      return;
    }
    begin_body(reader);
    input_.erase(0, reader.feed(input_));
  }
  if (reader.error().status != 0) {
    turn_ = new_turn({.keep_alive = false});
    service_.handle_unreadable(reader.error(), turn_);
  } else if (incoming_.head_seen) {
    check_body(reader);
  }
}

// False: the connection ends. True: a request is whole, or answered already (then in turn_).
template <class Stream>
auto Connection<Stream>::read_request(RequestReader& reader) -> Awaitable<bool> {
  set_deadline(limits_.keep_alive_timeout);
  while (true) {
    if (!input_.empty()) {
      if (!reading_request_) set_deadline(limits_.read_timeout);
      reading_request_ = true;
      take_input(reader);
      if (turn_ || reader.done()) co_return true;
      if (std::exchange(incoming_.continue_owed, false)) {
        const bool written = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
        if (!written) co_return false;
      }
    }
    if (timed_out_) {
      turn_ = new_turn({.keep_alive = false});
      service_.handle_unreadable({408, "the request did not come in time"}, turn_);
      co_return true;
    }
    if (end_of_input_ || closed_ || ending_) co_return false;
    start_read();
    co_await wait();
  }
}

template <class Stream>
auto Connection<Stream>::write_all(std::string_view bytes) -> Awaitable<bool> {
  constexpr size_t kMost = 256 << 10;  // progress is noticed after so many at the latest
  const auto before = deadline_;
  if constexpr (!kTls) {
    // Mostly the socket has room: then nobody needs to be woken for it later.
    boost::system::error_code error;
    bytes.remove_prefix(stream_.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error));
    if (error && error != boost::asio::error::would_block) co_return false;
  }
  while (!bytes.empty() && !closed_) {
    set_deadline(limits_.write_timeout);
    const auto part = boost::asio::const_buffer(bytes.data(), std::min(bytes.size(), kMost));
    const auto result = co_await stream_.async_write_some(part, kTuple);
    if (std::get<0>(result)) co_return false;
    bytes.remove_prefix(std::get<1>(result));
  }
  deadline_ = before;
  co_return bytes.empty();
}

// Writes the answer as it comes. False: the client is gone.
template <class Stream>
auto Connection<Stream>::write_turn() -> Awaitable<bool> {
  clear_deadline();
  std::string output;
  while (!turn_->abandoned() && !closed_) {
    if (!turn_->has_output()) {
      if (turn_->finished()) co_return true;
      start_read();
      co_await wait();
      continue;
    }
    output = turn_->take_output();
    const bool written = co_await write_all(output);
    if (!written) break;
  }
  turn_->abandon();
  co_return false;
}

// Says that nothing more comes (close_notify), so that the client can tell the end from a cut.
template <class Stream>
auto Connection<Stream>::shut_down_tls() -> Awaitable<void> {
  if constexpr (kTls) {
    set_deadline(std::chrono::seconds(2));
    co_await stream_.async_shutdown(kTuple);
  }
  co_return;
}

// A socket that is closed with unread input resets the connection, and the client may lose the
// answer: takes what comes for a while, and not faster than a client could be worth.
template <class Stream>
auto Connection<Stream>::linger() -> Awaitable<void> {
  co_await shut_down_tls();
  boost::system::error_code ignored;
  boost::asio::ip::tcp::socket& socket = tcp_socket();
  socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  set_deadline(std::chrono::seconds(3));
  std::vector<char> dropped(kLargeRead);
  boost::asio::steady_timer pause(stream_.get_executor());
  while (!end_of_input_ && !closed_) {
    const auto result = co_await socket.async_read_some(boost::asio::buffer(dropped), kTuple);
    if (std::get<0>(result)) break;
    pause.expires_after(std::chrono::milliseconds(4));
    co_await pause.async_wait(kTuple);
  }
}

template <class Stream>
std::shared_ptr<Turn> Connection<Stream>::new_turn(const HttpRequest& request) {
  TurnOptions options;
  options.http10 = request.http10;
  options.keep_alive = request.keep_alive;
  options.head_only = request.method == "HEAD";
  options.max_buffered_bytes = limits_.max_stream_buffer_bytes;
  std::weak_ptr<Connection> weak = this->shared_from_this();
  return std::make_shared<Turn>(options, [weak] {
    const auto self = weak.lock();
    if (!self) return;
    // A write that hangs must not outlive its turn.
    if (self->turn_ && self->turn_->abandoned()) self->close();
    self->signal_.cancel();
  });
}

template <class Stream>
auto Connection<Stream>::serve() -> Awaitable<void> {
  const auto self = this->shared_from_this();
  if constexpr (kTls) {
    set_deadline(limits_.read_timeout);
    const auto result =
        co_await stream_.async_handshake(boost::asio::ssl::stream_base::server, kTuple);
    if (std::get<0>(result)) closed_ = true;
  }
  while (!closed_) {
    RequestReader reader(limits_.read);
    const bool usable = co_await read_request(reader);
    reading_request_ = false;
    clear_deadline();
    if (!usable) break;
    served_ = true;
    if (!turn_) {
      HttpRequest request = reader.take();
      request.body_lease = std::move(incoming_.lease);
      turn_ = new_turn(request);
      service_.handle(std::move(request), turn_);
    }
    incoming_ = {};
    if (chunk_.size() != kSmallRead && !read_pending_) chunk_ = std::vector<char>(kSmallRead);
    const bool written = co_await write_turn();
    const bool keep = written && turn_->keep_alive() && !service_.draining();
    turn_.reset();
    if (keep) continue;
    if (written) co_await linger();
    close();
  }
  if (!closed_) co_await shut_down_tls();
  close();
}

}  // namespace zipage::server
