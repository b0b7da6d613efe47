// When a client whom a full queue refused should ask again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace zipage::server {

// Knows how fast prompts have been finished lately, and how many refused ones are still to come
// back: those go first, so that clients who do as they are told come back one after the other
// rather than all at once. Times in seconds of one clock. Thread: the io thread.
class RetryAfter {
 public:
  static constexpr double kMemory = 30;  // seconds that the rate looks back, as 1/e
  static constexpr int64_t kLeast = 1, kMost = 120;

  // The first prompts have begun: the rate is counted from here on.
  void begin(double now) {
    if (start_ < 0) start_ = last_ = now;
  }
  void finished(double now, int64_t prompts = 1) {
    decay(now);
    sum_ += static_cast<double>(prompts);
  }
  // Prompts a second; 0 while none was finished.
  double rate(double now) const {
    if (start_ < 0 || now <= start_) return 0;
    const double seen = kMemory * (1 - std::exp(-(now - start_) / kMemory));
    return sum_ * std::exp(-(now - last_) / kMemory) / seen;
  }
  // The header's value for a request of so many prompts that is refused now.
  int64_t refuse(double now, int64_t prompts) {
    const double each_second = rate(now);
    if (each_second <= 0) return kLeast;
    backlog_ =
        std::max(0.0, backlog_ - each_second * (now - asked_)) + static_cast<double>(prompts);
    asked_ = now;
    // A client who is told the most comes back by then; more of a backlog says nothing new.
    backlog_ = std::min(backlog_, each_second * static_cast<double>(kMost));
    return std::clamp(static_cast<int64_t>(std::ceil(backlog_ / each_second)), kLeast, kMost);
  }

 private:
  void decay(double now) {
    begin(now);
    sum_ *= std::exp(-(now - last_) / kMemory);
    last_ = now;
  }

  double start_ = -1, last_ = 0, sum_ = 0;
  double backlog_ = 0, asked_ = 0;  // refused prompts that are still to come back
};

}  // namespace zipage::server
