#include "engine_owner.h"

#include <unistd.h>

namespace zipage::py {
namespace {

// Lines that nobody reads do not pile up for ever.
constexpr size_t kMaxLogLines = 1000;

}  // namespace

Result<std::shared_ptr<EngineOwner>> EngineOwner::open(EngineOptions options) {
  std::shared_ptr<EngineOwner> owner(new EngineOwner);
  owner->process_ = getpid();
  options.log = [log = owner->log_](const std::string& level, const std::string& line) {
    const std::lock_guard lock(log->mutex);
    if (log->lines.size() == kMaxLogLines) log->lines.pop_front();
    log->lines.emplace_back(level, line);
  };
  Result<std::unique_ptr<Engine>> created = Engine::create(options);
  if (!created.ok()) return created.status();
  owner->engine_ = std::move(created).value();
  owner->engine_->start();
  return owner;
}

EngineOwner::~EngineOwner() { close(); }

Result<std::shared_ptr<Engine>> EngineOwner::engine() const {
  if (getpid() != process_) {
    return Status(StatusCode::kFailedPrecondition,
                  "this engine belongs to process " + std::to_string(process_) +
                      ", and a forked child has no copy of its threads: create the LLM in the "
                      "child, or start processes with multiprocessing's 'spawn' method");
  }
  const std::lock_guard lock(mutex_);
  if (!engine_) return Status(StatusCode::kFailedPrecondition, "this engine was shut down");
  return engine_;
}

bool EngineOwner::closed() const {
  if (getpid() != process_) return true;
  const std::lock_guard lock(mutex_);
  return engine_ == nullptr;
}

void EngineOwner::close() {
  if (getpid() != process_) {
    // Leaked on purpose: a destructor would join a thread that does not exist here. The lock may be
    // held by one, too.
    if (engine_) new std::shared_ptr<Engine>(std::move(engine_));
    return;
  }
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex_);
    engine.swap(engine_);
  }
  if (engine) engine->stop();
}

std::vector<EngineOwner::LogLine> EngineOwner::take_log() {
  if (getpid() != process_) return {};
  const std::lock_guard lock(log_->mutex);
  std::vector<LogLine> lines(log_->lines.begin(), log_->lines.end());
  log_->lines.clear();
  return lines;
}

}  // namespace zipage::py
