// What the program shows: log lines and progress bars on stderr, Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"

namespace zipage::cli {

LogLevel parse_log_level(const std::string& text);  // throws kInvalidArgument naming --log-level
// One line on stderr when its level reaches the threshold; a bar in progress is wiped first.
void log_line(LogLevel threshold, const std::string& level, const std::string& line);

// One line on stderr, redrawn at most ten times a second, and only when stderr is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(const std::string& detail, int64_t done, int64_t total);
  void finish();  // wipes the line

 private:
  const std::string title_;
  const bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), last_{};
};

// Between construction and destruction Ctrl-C (and SIGTERM) sets a flag instead of ending the
// program; a second one ends it at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  bool interrupted() const;
  void clear();
};

// Lets the process open as many files (and sockets) as the system allows it to.
void raise_file_limit();

// A table with a header line, columns aligned (numbers to the right).
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace zipage::cli
