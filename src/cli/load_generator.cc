#include "cli/load_generator.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <cmath>
#include <random>
#include <sys/resource.h>
#include <unordered_set>

#include "base/error.h"
#include "cli/client_connection.h"
#include "cli/load_answer.h"

namespace zipage::cli {
namespace net = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTuple = net::as_tuple(net::use_awaitable);

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double retry_after_of(const ResponseReader& reader) {
  const std::string_view text = reader.header("Retry-After");
  double seconds = -1;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

class Generator {
 public:
  Generator(const LoadTarget& target,
            const LoadOptions& options,
            const std::vector<LoadRequest>& requests,
            const std::function<bool(const LoadProgress&)>& tick)
      : options_(options),
        requests_(requests),
        tick_(tick),
        connector_(io_, target),
        slot_free_(io_, Clock::time_point::max()),
        ticker_(io_) {}

  LoadRun run() {
    const double cpu = cpu_seconds();
    net::co_spawn(io_, load(), net::detached);
    net::co_spawn(io_, watch(), net::detached);
    io_.run();
    run_.seconds = ended_;
    run_.cpu_seconds = cpu_seconds() - cpu;
    return std::move(run_);
  }

 private:
  // A connection in use, for the deadlines.
  struct Live {
    ClientConnection* connection;
    Clock::time_point last;  // byte
    bool timed_out = false;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }
  bool rated() const { return std::isfinite(options_.request_rate); }
  net::awaitable<void> load();
  net::awaitable<void> watch();
  net::awaitable<void> one(size_t index);
  net::awaitable<bool> exchange(Live& live, const LoadRequest& request, LoadResult& result);
  net::awaitable<void> read_slowly(size_t index);
  std::unique_ptr<ClientConnection> take_idle();
  void answered(const ResponseReader& reader, LoadResult& result);

  const LoadOptions& options_;
  const std::vector<LoadRequest>& requests_;
  const std::function<bool(const LoadProgress&)>& tick_;
  net::io_context io_{1};
  Connector connector_;
  net::steady_timer slot_free_, ticker_;  // slot_free_ is cancelled when a request ends
  std::vector<std::unique_ptr<ClientConnection>> idle_;
  std::unordered_set<Live*> live_;
  Clock::time_point started_ = Clock::now();
  LoadRun run_;
  LoadProgress progress_;
  double ended_ = 0;
  int64_t slow_started_ = 0;
  bool over_ = false;
};

net::awaitable<void> Generator::load() {
  for (int64_t i = 0; i < options_.slow_readers; ++i)
    net::co_spawn(io_, read_slowly(static_cast<size_t>(i) % requests_.size()), net::detached);
  while (slow_started_ < options_.slow_readers) {
    net::steady_timer pause(io_, std::chrono::milliseconds(20));
    co_await pause.async_wait(kTuple);
  }
  started_ = Clock::now();
  std::mt19937_64 random(options_.seed);
  // Gaps of mean 1 / rate; shape 1 makes a Poisson process.
  std::gamma_distribution<double> gap(
      options_.burstiness, rated() ? 1.0 / (options_.request_rate * options_.burstiness) : 1.0);
  const bool endless = options_.duration_seconds > 0;
  progress_.total = endless ? 0 : static_cast<int64_t>(requests_.size());
  net::steady_timer arrival(io_);
  double due = 0;
  for (size_t i = 0; endless || i < requests_.size(); ++i) {
    if (rated() && i > 0) due += gap(random);
    if (endless && std::max(due, now()) >= options_.duration_seconds) break;
    if (due > now()) {
      arrival.expires_at(started_ + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(due)));
      co_await arrival.async_wait(kTuple);
    }
    while (options_.max_concurrency > 0 && progress_.in_flight >= options_.max_concurrency) {
      slot_free_.expires_at(Clock::time_point::max());
      co_await slot_free_.async_wait(kTuple);
    }
    if (endless && now() >= options_.duration_seconds) break;
    ++progress_.in_flight;
    run_.peak_in_flight = std::max(run_.peak_in_flight, progress_.in_flight);
    net::co_spawn(io_, one(i % requests_.size()), net::detached);
  }
  while (progress_.in_flight > 0) {
    slot_free_.expires_at(Clock::time_point::max());
    co_await slot_free_.async_wait(kTuple);
  }
  ended_ = now();
  over_ = true;
  io_.stop();
}

net::awaitable<void> Generator::watch() {
  while (!over_) {
    ticker_.expires_after(std::chrono::milliseconds(100));
    co_await ticker_.async_wait(kTuple);
    const auto limit = Clock::now() - options_.timeout;
    for (Live* live : live_) {
      if (live->timed_out || live->last > limit) continue;
      live->timed_out = true;
      live->connection->close();
    }
    progress_.seconds = now();
    if (tick_(progress_)) continue;
    run_.interrupted = true;
    ended_ = now();
    io_.stop();
  }
}

std::unique_ptr<ClientConnection> Generator::take_idle() {
  if (idle_.empty()) return nullptr;
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

net::awaitable<void> Generator::one(size_t index) {
  LoadResult result;
  const double start = now();
  for (bool again = true; again;) {
    again = false;
    result = LoadResult{};
    result.request = index;
    result.start = start;
    auto connection = take_idle();
    const bool reused = connection != nullptr;
    if (!reused) connection = connector_.make();
    Live live{connection.get(), Clock::now()};
    live_.insert(&live);
    bool keep = false;
    if (!reused) {
      const auto error = co_await connection->open(connector_.endpoints(), 0);
      if (error) result.failure = "connect: " + error.message();
    }
    if (result.failure.empty()) keep = co_await exchange(live, requests_[index], result);
    live_.erase(&live);
    if (live.timed_out)
      result.failure = fmt::format("timeout: nothing for {} s", options_.timeout.count());
    if (keep) {
      idle_.push_back(std::move(connection));
    } else if (reused && result.status == 0 && !live.timed_out) {
      again = true;  // the server had closed the idle connection
    }
  }
  result.end = now();
  ++(result.failure.empty() ? progress_.finished : progress_.failed);
  --progress_.in_flight;
  run_.results.push_back(std::move(result));
  slot_free_.cancel();
}

// True: the connection can be used again.
net::awaitable<bool> Generator::exchange(Live& live,
                                         const LoadRequest& request,
                                         LoadResult& result) {
  const std::string bytes = connector_.request(request.path, request.body);
  if (const auto error = co_await live.connection->write(bytes)) {
    result.failure = "send: " + error.message();
    co_return false;
  }
  ResponseReader reader;
  EventReader events;
  AnswerNotes notes(result, options_.keep_output);
  std::array<char, 4096> buffer;
  std::string input, body;
  bool streamed = false;
  while (!reader.done()) {
    const auto [error, size] = co_await live.connection->read(net::buffer(buffer));
    live.last = Clock::now();
    if (error == net::error::eof) {
      reader.end_of_input();
    } else if (error) {
      result.failure = "receive: " + error.message();
      co_return false;
    }
    input.append(buffer.data(), size);
    input.erase(0, reader.feed(input));
    if (!reader.error().empty()) {
      result.failure = reader.error();
      co_return false;
    }
    if (!reader.header_done()) {
      if (!error) continue;
      result.failure = "the connection was closed without an answer";
      co_return false;
    }
    if (result.status == 0) {
      result.status = reader.status();
      streamed = reader.header("Content-Type").starts_with("text/event-stream");
    }
    if (!streamed || result.status != 200) {
      body += reader.take_body();
    } else {
      const int64_t chunks = result.chunks;
      const double time = now();
      events.feed(reader.take_body(), [&](std::string_view data) { notes.event(data, time); });
      progress_.chunks += result.chunks - chunks;
    }
  }
  if (result.status == 200) {
    if (!streamed) notes.whole(body, now());
    notes.finish(streamed);
  } else {
    result.retry_after = retry_after_of(reader);
    result.failure = fmt::format("HTTP {}: {}", result.status, error_message(body));
  }
  co_return reader.keep_alive() && input.empty();
}

// A client that takes a few bytes now and then, until the load is over.
net::awaitable<void> Generator::read_slowly(size_t index) {
  const auto connection = connector_.make();
  const std::string bytes = connector_.request(requests_[index].path, requests_[index].body);
  auto error = co_await connection->open(connector_.endpoints(), 4096);
  if (!error) error = co_await connection->write(bytes);
  std::array<char, 256> buffer;
  bool first = true;
  net::steady_timer pause(io_);
  while (!error) {
    error = (co_await connection->read(net::buffer(buffer))).first;
    if (std::exchange(first, false)) ++slow_started_;
    pause.expires_after(std::chrono::milliseconds(250));
    co_await pause.async_wait(kTuple);
  }
  if (first) ++slow_started_;
  ++run_.slow_readers_dropped;
}

}  // namespace

LoadRun run_load(const LoadTarget& target,
                 const LoadOptions& options,
                 const std::vector<LoadRequest>& requests,
                 const std::function<bool(const LoadProgress&)>& tick) {
  return Generator(target, options, requests, tick).run();
}

PlainResponse http_get(const LoadTarget& target, const std::string& path) {
  net::io_context io{1};
  const Connector connector(io, target);
  PlainResponse response;
  std::string failure = "no answer in 10 s";
  net::co_spawn(
      io,
      [&]() -> net::awaitable<void> {
        const auto connection = connector.make();
        auto error = co_await connection->open(connector.endpoints(), 0);
        const std::string bytes = connector.request(path, {});
        if (!error) error = co_await connection->write(bytes);
        ResponseReader reader;
        std::string input;
        std::array<char, 4096> buffer;
        while (!error && !reader.done() && reader.error().empty()) {
          const auto got = co_await connection->read(net::buffer(buffer));
          error = got.first;
          if (error == net::error::eof) reader.end_of_input();
          input.append(buffer.data(), got.second);
          input.erase(0, reader.feed(input));
        }
        failure = !reader.error().empty() ? reader.error() : reader.done() ? "" : error.message();
        if (reader.done()) response = {reader.status(), reader.take_body()};
      },
      net::detached);
  io.run_for(std::chrono::seconds(10));
  if (!failure.empty()) fail(StatusCode::kUnavailable, "{}: {}", target.url.text(), failure);
  return response;
}

}  // namespace zipage::cli
