// A server on a free port of 127.0.0.1 over the fake engine, and plain sockets to talk to it.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "server/fake_engine.h"
#include "server/server.h"
#include "server/service_fixture.h"

namespace zipage::testing_server {

class Socket {
 public:
  explicit Socket(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // As a killed client does: the peer gets a reset.
  void reset() {
    linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  bool connected() const { return connected_; }
  void send(const std::string& bytes) {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // What comes until `mark` was seen, or the end.
  std::string read_until(const std::string& mark) {
    std::string text;
    char buffer[4096];
    while (mark.empty() || text.find(mark) == std::string::npos) {
      const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  std::string read_to_end() { return read_until(""); }

 private:
  int fd_;
  bool connected_ = false;
};

inline std::string post(const std::string& path, const std::string& body, const char* more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class Loopback {
 public:
  explicit Loopback(ServerOptions options = {},
                    std::chrono::microseconds step_pause = {},
                    bool signals = false) {
    options.port = 0;
    server = std::make_unique<server::Server>(std::move(options));
    if (signals) server->handle_signals();
    engine.step_done = server->step_done();
    server->set_engine(engine);
    io_ = std::thread([this] { server->run(); });
    steps_ = std::thread([this, step_pause] {
      while (!stopping_) {
        if (!engine.step()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (step_pause.count() > 0) std::this_thread::sleep_for(step_pause);
      }
    });
  }
  ~Loopback() {
    server->stop();
    join();
  }
  void join() {
    if (io_.joinable()) io_.join();
    stopping_ = true;
    if (steps_.joinable()) steps_.join();
  }
  std::string ask(const std::string& bytes) {
    Socket socket(server->port());
    socket.send(bytes);
    return socket.read_to_end();
  }
  // Waits for /load to be 0.
  bool idle() {
    for (int i = 0; i < 500; ++i) {
      const Answer load = parse_answer(ask("GET /load HTTP/1.0\r\n\r\n"));
      if (load.status == 200 && load.parsed().at("unfinished_sequences") == 0 &&
          load.parsed().at("server_load") == 0)
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  FakeEngine engine;
  std::unique_ptr<server::Server> server;

 private:
  std::thread io_, steps_;
  std::atomic<bool> stopping_{false};
};

}  // namespace zipage::testing_server
