// An engine with its step thread, which belongs to the process that made it.
//
// Threads: any. Nothing here touches Python, so the GIL may be released around every call.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "zipage/engine.h"

namespace zipage::py {

class EngineOwner {
 public:
  using LogLine = std::pair<std::string, std::string>;  // level, text

  // Creates the engine and starts its thread. Log lines are kept until take_log().
  static Result<std::shared_ptr<EngineOwner>> open(EngineOptions options);
  ~EngineOwner();
  EngineOwner(const EngineOwner&) = delete;
  EngineOwner& operator=(const EngineOwner&) = delete;

  // The engine; kFailedPrecondition after close() and in a forked child.
  Result<std::shared_ptr<Engine>> engine() const;
  bool closed() const;
  // Ends the step thread and frees the engine's memory. In a forked child, which has neither the
  // thread nor a sound copy of its locks, the memory is left alone.
  void close();
  std::vector<LogLine> take_log();

 private:
  struct Log {
    std::mutex mutex;
    std::deque<LogLine> lines;
  };

  EngineOwner() = default;

  pid_t process_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

}  // namespace zipage::py
