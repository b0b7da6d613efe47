#include "backend/cpu/runtime/stream.h"

#include <algorithm>

namespace zipage::cpu {

QueuedStream::QueuedStream(const CpuContext& context, Drive drive)
    : drive_(drive),
      own_(drive == Drive::kPool && context.pool->num_threads() == 1
               ? std::make_unique<ThreadPool>(2)
               : nullptr),
      workers_(own_ != nullptr ? own_.get() : context.pool),
      context_(context),
      ring_(64) {
  context_.pool = &pool_;
  context_.scratch = &scratch_;
}

QueuedStream::~QueuedStream() {
  if (drive_ == Drive::kManual) return;
  run_until(num_pushed_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !offered_; });
}

void QueuedStream::push(Task task) { push_entry(Entry{std::move(task), false}); }

uint64_t QueuedStream::push_entry(Entry entry) {
  std::lock_guard lock(mutex_);
  if (size_ == ring_.size()) {
    std::vector<Entry> larger(ring_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
    ring_ = std::move(larger);
    head_ = 0;
  }
  ring_[(head_ + size_) % ring_.size()] = std::move(entry);
  ++size_;
  offer_if_needed();
  return ++num_pushed_;
}

// Whenever work is queued that nobody runs, the workers have been asked to.
void QueuedStream::offer_if_needed() {
  if (drive_ != Drive::kPool || size_ == 0 || running_ || offered_) return;
  offered_ = true;
  workers_->offer(*this);
}

bool QueuedStream::run_part() noexcept {
  std::unique_lock lock(mutex_);
  run_next(lock);
  offered_ = size_ > 0 && !running_;  // whoever runs one now offers the rest
  changed_.notify_all();
  return offered_;
}

bool QueuedStream::pop(Entry& entry) {
  if (size_ == 0) return false;
  entry = std::move(ring_[head_]);
  head_ = (head_ + 1) % ring_.size();
  --size_;
  return true;
}

void QueuedStream::run(Entry& entry) noexcept {
  bool skip;
  {
    std::lock_guard lock(mutex_);
    skip = failure_ != nullptr && !entry.always;
  }
  if (!skip) {
    try {
      entry.task(context_);
    } catch (...) {
      auto failure = std::make_shared<Failure>();
      failure->error = std::current_exception();
      std::lock_guard lock(mutex_);
      failure_ = failure;
      last_failure_ = failure;
    }
  }
  entry = Entry();  // frees what the task holds before anyone is told that it is done
  std::lock_guard lock(mutex_);
  ++num_run_;
  running_ = false;
  offer_if_needed();
  changed_.notify_all();
}

bool QueuedStream::run_next(std::unique_lock<std::mutex>& lock) {
  Entry entry;
  if (running_ || !pop(entry)) return false;
  running_ = true;
  lock.unlock();
  run(entry);
  lock.lock();
  return true;
}

bool QueuedStream::run_next() {
  std::unique_lock lock(mutex_);
  return run_next(lock);
}

void QueuedStream::run_until(uint64_t target) {
  std::unique_lock lock(mutex_);
  while (num_run_ < target) {
    if (!run_next(lock)) changed_.wait(lock);
  }
}

size_t QueuedStream::num_queued() {
  std::lock_guard lock(mutex_);
  return size_;
}

void QueuedStream::synchronize() {
  uint64_t target;
  {
    std::lock_guard lock(mutex_);
    target = num_pushed_;
  }
  run_until(target);
  std::shared_ptr<Failure> failure;
  {
    std::lock_guard lock(mutex_);
    failure_ = nullptr;
    failure = std::exchange(last_failure_, nullptr);
    if (failure == nullptr || failure->reported.exchange(true)) return;
  }
  std::rethrow_exception(failure->error);
}

void CpuEvent::record(Stream& stream) {
  auto* queued = dynamic_cast<QueuedStream*>(&stream);
  uint64_t number;
  {
    std::lock_guard lock(state_->mutex);
    number = ++state_->recorded;
    state_->failure = nullptr;
    if (queued == nullptr) state_->reached = number;  // its work has run already
  }
  if (queued == nullptr) return;
  auto mark = [state = state_, number, queued](CpuContext&) {
    std::shared_ptr<Failure> failure;
    {
      std::lock_guard lock(queued->mutex_);
      failure = std::exchange(queued->failure_, nullptr);
    }
    std::lock_guard lock(state->mutex);
    if (number == state->recorded) state->failure = std::move(failure);
    state->reached = std::max(state->reached, number);
  };
  const uint64_t count = queued->push_entry({Task(std::move(mark)), true});
  std::lock_guard lock(state_->mutex);
  state_->place = {queued, count};
}

bool CpuEvent::query() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->reached < state_->recorded) return false;
  }
  rethrow();
  return true;
}

CpuEvent::Place CpuEvent::place() {
  std::lock_guard lock(state_->mutex);
  if (state_->reached == state_->recorded) return {};
  return state_->place;
}

void CpuEvent::wait() {
  place().wait();
  rethrow();
}

void CpuEvent::block(Stream& stream) {
  const Place before = place();
  if (auto* queued = dynamic_cast<QueuedStream*>(&stream); queued != nullptr) {
    if (before.stream != nullptr)
      queued->push_entry({Task([before](CpuContext&) { before.wait(); }), true});
  } else {
    before.wait();
  }
}

void CpuEvent::Place::wait() const {
  if (stream != nullptr) stream->run_until(count);
}

void CpuEvent::rethrow() {
  std::exception_ptr error;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->failure == nullptr) return;
    state_->failure->reported = true;
    error = state_->failure->error;
  }
  std::rethrow_exception(error);
}

}  // namespace zipage::cpu
