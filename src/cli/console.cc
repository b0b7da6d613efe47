#include "cli/console.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

namespace zipage::cli {
namespace {

// Signal handlers can reach nothing but statics.
std::atomic<int> signal_count{0};

void on_signal(int) {
  if (signal_count.fetch_add(1) > 0) _exit(130);
}

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int level_rank(const std::string& level) {
  return level == "debug" ? 0 : level == "warning" ? 2 : level == "error" ? 3 : 1;
}

}  // namespace

LogLevel parse_log_level(const std::string& text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  fail_invalid("--log-level: '{}': expected debug, info, warning or error", text);
}

void log_line(LogLevel threshold, const std::string& level, const std::string& line) {
  if (level_rank(level) < static_cast<int>(threshold)) return;
  std::string word = level;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  const char* wipe = isatty(STDERR_FILENO) ? "\r\x1b[K" : "";
  const std::string text = fmt::format("{}{} {:%m-%d %H:%M:%S} {}\n", wipe, word, local, line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), shown_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::update(const std::string& detail, int64_t done, int64_t total) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kCells = 20;
  const int filled =
      total > 0 ? static_cast<int>(std::clamp<int64_t>(done * kCells / total, 0, kCells)) : 0;
  std::string bar;
  for (int i = 0; i < kCells; ++i) bar += i < filled ? "#" : "-";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
  std::string line = fmt::format("{}: {:3}%|{}| {}/{} [{:02}:{:02}] {}", title_,
                                 total > 0 ? done * 100 / total : 0, bar, done, total, seconds / 60,
                                 seconds % 60, detail);
  const auto width = static_cast<size_t>(terminal_width() - 1);
  if (line.size() > width) line.resize(width);
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (drawn_) std::fprintf(stderr, "\r\x1b[K");
  drawn_ = false;
}

InterruptGuard::InterruptGuard() {
  signal_count = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::interrupted() const { return signal_count.load() > 0; }
void InterruptGuard::clear() { signal_count = 0; }

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", rows[r][i], widths[i])
                     : fmt::format("  {:>{}}", rows[r][i], widths[i]);
    }
    text += line + "\n";
    if (r == 0) text += std::string(line.size(), '-') + "\n";
  }
  return text;
}

}  // namespace zipage::cli
