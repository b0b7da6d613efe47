// Carries what the engine's step thread produces to the io thread: one post a step at most, and
// never a wait for the io thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "zipage/engine.h"

namespace zipage::server {

struct Delivery {
  uint64_t generation = 0;
  size_t prompt = 0;
  std::chrono::steady_clock::time_point time;
  RequestOutput output;
};

class Mailbox {
 public:
  // `post` hands a task to the io thread; it may be called from any thread.
  using Post = std::function<void(std::function<void()>)>;
  Mailbox(Post post, std::function<void(std::vector<Delivery>&)> receive)
      : post_(std::move(post)), receive_(std::move(receive)) {}

  // Step thread: keeps a copy of the output.
  void put(uint64_t generation, size_t prompt, const RequestOutput& output) {
    std::lock_guard lock(mutex_);
    waiting_.push_back({generation, prompt, std::chrono::steady_clock::now(), output});
  }

  // Step thread, after a step: posts once for all that was put.
  void flush() {
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty() || posted_) return;
      posted_ = true;
    }
    post_([this] { drain(); });
  }

 private:
  // Io thread.
  void drain() {
    drained_.clear();
    {
      std::lock_guard lock(mutex_);
      drained_.swap(waiting_);
      posted_ = false;
    }
    receive_(drained_);
  }

  const Post post_;
  const std::function<void(std::vector<Delivery>&)> receive_;
  std::mutex mutex_;
  std::vector<Delivery> waiting_;
  bool posted_ = false;
  std::vector<Delivery> drained_;  // io thread only; its memory is reused
};

}  // namespace zipage::server
