// A program on a terminal of its own: what a person types and sees.
#pragma once

#include <chrono>
#include <csignal>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace zipage::cli {

class Terminal {
 public:
  explicit Terminal(std::vector<std::string> arguments) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) {
    if (write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) closed_ = true;
  }
  // What is shown from now on, up to and with `end`; all there is when the program ends or is
  // silent for a minute first. num_pieces: in how many pieces it came.
  std::string read_until(const std::string& end, int* num_pieces = nullptr) {
    for (;;) {
      if (const size_t at = pending_.find(end); at != std::string::npos) {
        std::string text = pending_.substr(0, at + end.size());
        pending_.erase(0, at + end.size());
        return text;
      }
      pollfd poll_fd{fd_, POLLIN, 0};
      char buffer[4096];
      const ssize_t n =
          !closed_ && poll(&poll_fd, 1, 60000) > 0 ? read(fd_, buffer, sizeof buffer) : -1;
      if (n <= 0) {
        closed_ = true;
        return std::exchange(pending_, "");
      }
      pending_.append(buffer, static_cast<size_t>(n));
      if (num_pieces != nullptr) ++*num_pieces;
    }
  }
  // The status of waitpid(), after the rest of the output was read.
  int wait() {
    read_until("\x01never");
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  bool closed_ = false;
  std::string pending_;
};

}  // namespace zipage::cli
