#include "backend/cpu/stream.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

namespace zipage::cpu {
namespace {

// A compression takes a few hundredths of a core. At the pool's own priority its thread, each time
// it wakes, would push a thread of the pool off its core in the middle of an op that all wait for.
constexpr int kNice = 10;

void lower_priority_of_this_thread() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + kNice);
}

}  // namespace

QueuedStream::QueuedStream(const CpuContext& context, Drive drive)
    : drive_(drive), context_(context), ring_(64) {
  context_.pool = &pool_;
  context_.scratch = &scratch_;
  if (drive_ == Drive::kWorker) worker_ = std::thread([this] { work(); });
}

QueuedStream::~QueuedStream() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void QueuedStream::push(Task task) { push_entry(Entry{std::move(task), false}); }

void QueuedStream::push_entry(Entry entry) {
  {
    std::lock_guard lock(mutex_);
    if (size_ == ring_.size()) {
      std::vector<Entry> larger(ring_.size() * 2);
      for (size_t i = 0; i < size_; ++i) larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
      ring_ = std::move(larger);
      head_ = 0;
    }
    ring_[(head_ + size_) % ring_.size()] = std::move(entry);
    ++size_;
    ++num_pushed_;
  }
  wake_.notify_one();
}

bool QueuedStream::pop(Entry& entry) {
  if (size_ == 0) return false;
  entry = std::move(ring_[head_]);
  head_ = (head_ + 1) % ring_.size();
  --size_;
  return true;
}

void QueuedStream::run(Entry& entry) {
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
  {
    std::lock_guard lock(mutex_);
    ++num_run_;
  }
  done_.notify_all();
}

bool QueuedStream::run_next() {
  ZIPAGE_CHECK(drive_ == Drive::kManual);
  Entry entry;
  {
    std::lock_guard lock(mutex_);
    if (!pop(entry)) return false;
  }
  run(entry);
  return true;
}

void QueuedStream::work() {
  lower_priority_of_this_thread();
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return size_ > 0 || stopping_; });
      if (!pop(entry)) return;
    }
    run(entry);
  }
}

size_t QueuedStream::num_queued() {
  std::lock_guard lock(mutex_);
  return size_;
}

void QueuedStream::synchronize() {
  if (drive_ == Drive::kManual) {
    while (run_next()) {
    }
  }
  std::shared_ptr<Failure> failure;
  {
    std::unique_lock lock(mutex_);
    const uint64_t target = num_pushed_;
    done_.wait(lock, [&] { return num_run_ >= target; });
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
    state_->manual = queued != nullptr && queued->drive() == Drive::kManual ? queued : nullptr;
    if (queued == nullptr) state_->reached = number;  // its work has run already
  }
  if (queued == nullptr) {
    state_->changed.notify_all();
    return;
  }
  auto mark = [state = state_, number, queued](CpuContext&) {
    std::shared_ptr<Failure> failure;
    {
      std::lock_guard lock(queued->mutex_);
      failure = std::exchange(queued->failure_, nullptr);
    }
    {
      std::lock_guard lock(state->mutex);
      if (number == state->recorded) state->failure = std::move(failure);
      state->reached = number;
    }
    state->changed.notify_all();
  };
  queued->push_entry({Task(std::move(mark)), true});
}

bool CpuEvent::query() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->reached < state_->recorded) return false;
  }
  rethrow();
  return true;
}

void CpuEvent::wait() {
  uint64_t record;
  {
    std::lock_guard lock(state_->mutex);
    record = state_->recorded;
  }
  wait_for(*state_, record);
  rethrow();
}

void CpuEvent::wait_for(State& state, uint64_t record) {
  std::unique_lock lock(state.mutex);
  while (state.reached < record) {
    if (state.manual == nullptr) {
      state.changed.wait(lock);
      continue;
    }
    QueuedStream* manual = state.manual;
    lock.unlock();
    ZIPAGE_CHECK(manual->run_next());
    lock.lock();
  }
}

void CpuEvent::block(Stream& stream) {
  uint64_t record;
  {
    std::lock_guard lock(state_->mutex);
    record = state_->recorded;
  }
  if (auto* queued = dynamic_cast<QueuedStream*>(&stream); queued != nullptr) {
    queued->push_entry(
        {Task([state = state_, record](CpuContext&) { wait_for(*state, record); }), true});
  } else {
    wait_for(*state_, record);
  }
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
