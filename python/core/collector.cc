#include "collector.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace zipage::py {
namespace {

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Collector::State::~State() {
  if (event_fd >= 0) ::close(event_fd);
}

void Collector::State::add(int64_t key, const RequestOutput& output) {
  const std::lock_guard lock(mutex);
  const auto found = tickets.find(key);
  if (found == tickets.end()) return;
  Ticket& ticket = found->second;
  SequenceDelta& sequence = ticket.delta.sequences[static_cast<size_t>(output.index)];
  sequence.text += output.new_text;
  append(sequence.token_ids, output.new_token_ids);
  append(sequence.logprobs, output.new_logprobs);
  append(ticket.delta.prompt_logprobs, output.prompt_logprobs);
  ticket.delta.num_cached_tokens = output.num_cached_tokens;
  if (output.finished()) {
    sequence.finish_reason = output.finish_reason;
    sequence.stop_reason = output.stop_reason;
    sequence.error = output.error;
    ticket.delta.finished = --ticket.num_live == 0;
  }
  if (ticket.ready || !(every_token || ticket.delta.finished)) return;
  ticket.ready = true;
  ready.push_back(key);
  wake.notify_all();
  const uint64_t one = 1;
  // Cannot fail but when the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof one);
}

Collector::Collector(std::shared_ptr<EngineOwner> owner, bool every_token)
    : owner_(std::move(owner)) {
  state_->every_token = every_token;
  state_->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state_->event_fd < 0) throw std::runtime_error("eventfd: no file descriptor is left");
}

// Requests that nobody will ask for any more end.
Collector::~Collector() {
  const auto engine = owner_->engine();
  if (!engine.ok()) return;
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [key, ticket] : state_->tickets) {
      if (ticket.num_live > 0) ids.push_back(ticket.id);
    }
    state_->tickets.clear();
  }
  for (const RequestId id : ids) engine.value()->abort(id);
}

Status Collector::submit(int64_t key, Request request) {
  const auto engine = owner_->engine();
  if (!engine.ok()) return engine.status();
  if (request.sampling.n < 1) return Status(StatusCode::kInvalidArgument, "n: less than 1");
  {
    const std::lock_guard lock(state_->mutex);
    Ticket& ticket = state_->tickets[key];
    if (ticket.num_live > 0) return Status(StatusCode::kInternal, "a request's key is in use");
    ticket = Ticket{};
    ticket.num_live = request.sampling.n;
    ticket.delta.sequences.resize(static_cast<size_t>(request.sampling.n));
  }
  const auto callback = [state = state_, key](const RequestOutput& output) {
    state->add(key, output);
  };
  const Result<RequestId> id = engine.value()->submit(std::move(request), callback);
  const std::lock_guard lock(state_->mutex);
  if (!id.ok()) {
    state_->tickets.erase(key);
    return id.status();
  }
  const auto found = state_->tickets.find(key);  // gone when it is finished and taken already
  if (found != state_->tickets.end()) found->second.id = id.value();
  return Status();
}

Status Collector::abort(int64_t key) {
  const auto engine = owner_->engine();
  if (!engine.ok()) return engine.status();
  RequestId id = 0;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->tickets.find(key);
    if (found == state_->tickets.end()) return Status();
    id = found->second.id;
  }
  engine.value()->abort(id);
  return Status();
}

std::vector<int64_t> Collector::wait(double timeout_seconds) {
  std::unique_lock lock(state_->mutex);
  state_->wake.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                        [&] { return !state_->ready.empty(); });
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = ::read(state_->event_fd, &count, sizeof count);
  std::vector<int64_t> keys(state_->ready.begin(), state_->ready.end());
  state_->ready.clear();
  for (const int64_t key : keys) {
    const auto found = state_->tickets.find(key);
    if (found != state_->tickets.end()) found->second.ready = false;
  }
  return keys;
}

RequestDelta Collector::take(int64_t key) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->tickets.find(key);
  if (found == state_->tickets.end()) return RequestDelta{};
  Ticket& ticket = found->second;
  RequestDelta taken = std::move(ticket.delta);
  if (taken.finished) {
    state_->tickets.erase(found);
    return taken;
  }
  ticket.delta = RequestDelta{};
  ticket.delta.sequences.resize(taken.sequences.size());
  ticket.delta.num_cached_tokens = taken.num_cached_tokens;
  return taken;
}

int64_t Collector::num_live() const {
  const std::lock_guard lock(state_->mutex);
  return std::count_if(state_->tickets.begin(), state_->tickets.end(),
                       [](const auto& entry) { return entry.second.num_live > 0; });
}

int Collector::file_descriptor() const { return state_->event_fd; }

}  // namespace zipage::py
