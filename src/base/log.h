// Logger: a handle to the one log sink that the program installs. The library itself never prints.
// Copies are cheap and share the sink; there is no global logger, so it is passed down.
//
// Threads: safe if the sink is.
#pragma once

#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace zipage {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A handle that is passed down from EngineOptions' owner; copies share the sink. Thread-safe when
// the sink is.
class Logger {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;
  // Drops everything.
  Logger() = default;
  explicit Logger(Sink sink) : sink_(std::make_shared<Sink>(std::move(sink))) {}

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  void write(LogLevel level, std::string_view line) const {
    if (sink_ && *sink_) (*sink_)(level, line);
  }

 private:
  std::shared_ptr<Sink> sink_;
};

}  // namespace zipage
