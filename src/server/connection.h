// One client's socket: reads requests one after the other, writes their answers in order.
//
// While an answer is on its way the socket is read too: that is how a client that went away is
// noticed, and how a pipelined request gets into the buffer.
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "server/request_reader.h"
#include "server/service.h"
#include "server/turn.h"

namespace zipage::server {

// What the server needs to know of a connection. Thread: the io thread.
class ConnectionBase {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~ConnectionBase() = default;
  virtual void close() = 0;                       // now
  virtual void check(Clock::time_point now) = 0;  // its deadlines
  virtual void close_if_idle() = 0;               // nothing of a request has come
};

template <class Stream>
class Connection : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  static constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);
  static constexpr size_t kMaxAhead = 64 << 10;  // bytes read beyond the request in progress
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
    if (reading_request_ && !timed_out_ && !input_.empty()) {
      timed_out_ = true;  // a 408 is owed
      signal_.cancel();
    } else {
      close();
    }
  }
  void close_if_idle() override {
    if (!turn_ && input_.empty() && !reading_request_) close();
  }

 private:
  void set_deadline(std::chrono::seconds after) { deadline_ = Clock::now() + after; }
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void start_read();
  Awaitable<void> wait() {
    co_await signal_.async_wait(kTuple);
    signal_.expires_at(Clock::time_point::max());
  }
  Awaitable<bool> read_request(RequestReader& reader);
  Awaitable<bool> write_all(std::string_view bytes);
  Awaitable<bool> write_turn();
  Awaitable<void> linger();
  std::shared_ptr<Turn> new_turn(const HttpRequest& request);

  Stream stream_;
  Service& service_;
  const Limits& limits_;
  boost::asio::steady_timer signal_;  // cancelled when there is something to look at
  Clock::time_point deadline_ = Clock::time_point::max();
  std::array<char, 8192> chunk_{};
  std::string input_;  // read and not taken
  std::shared_ptr<Turn> turn_;
  bool read_pending_ = false, end_of_input_ = false, closed_ = false;
  bool reading_request_ = false, timed_out_ = false;
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

// False: the connection ends, without or with an answer (then in turn_).
template <class Stream>
auto Connection<Stream>::read_request(RequestReader& reader) -> Awaitable<bool> {
  set_deadline(limits_.keep_alive_timeout);
  while (true) {
    if (!input_.empty()) {
      if (!reading_request_) set_deadline(limits_.read_timeout);
      reading_request_ = true;
      input_.erase(0, reader.feed(input_));
      if (reader.error().status != 0) {
        turn_ = new_turn({.keep_alive = false});
        service_.handle_unreadable(reader.error(), turn_);
        co_return true;
      }
      if (reader.done()) co_return true;
      if (reader.take_expects_continue()) {
        const bool written = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
        if (!written) co_return false;
      }
    }
    if (timed_out_) {
      turn_ = new_turn({.keep_alive = false});
      service_.handle_unreadable({408, "the request did not come in time"}, turn_);
      co_return true;
    }
    if (end_of_input_ || closed_) co_return false;
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

// A socket that is closed with unread input resets the connection, and the client may lose the
// answer: takes what comes for a moment.
template <class Stream>
auto Connection<Stream>::linger() -> Awaitable<void> {
  boost::system::error_code ignored;
  stream_.lowest_layer().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  set_deadline(std::chrono::seconds(2));
  while (!end_of_input_ && !closed_) {
    start_read();
    co_await wait();
    input_.clear();
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
    if (!turn_) {
      HttpRequest request = reader.take();
      turn_ = new_turn(request);
      service_.handle(std::move(request), turn_);
    }
    const bool written = co_await write_turn();
    const bool keep = written && turn_->keep_alive() && !service_.draining();
    turn_.reset();
    if (!keep) {
      if (written) co_await linger();
      break;
    }
  }
  close();
}

}  // namespace zipage::server
