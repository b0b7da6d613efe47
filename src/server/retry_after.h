// When a client whom a full queue refused should ask again.
//
// Knows how fast sequences are finished while there are any, and how many refused ones are still to
// come back: those go first, so that clients who do as they are told come back one after the other
// rather than all at once. Time in which nothing is in progress says nothing about the speed and is
// not counted.
//
//   RetryAfter retry;
//   retry.change(now, +4);                        // four sequences begin
//   retry.change(now + 2, -1);                    // one has ended
//   const int64_t seconds = retry.refuse(now, 1);
//
// Times in seconds of one clock. Thread: the io thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace zipage::server {

class RetryAfter {
 public:
  // Busy seconds that the rate looks back, as 1/e.
  static constexpr double kMemory = 30;
  static constexpr int64_t kLeast = 1, kMost = 120;

  // So many sequences more (or, negative, that have ended) are in progress.
  void change(double now, int64_t sequences) {
    const double busy = busy_seconds(now);
    if (in_progress_ > 0) busy_ = busy;
    since_ = now;
    in_progress_ = std::max<int64_t>(0, in_progress_ + sequences);
    if (sequences >= 0) return;
    finished_ = finished_ * std::exp(-(busy - last_) / kMemory) - static_cast<double>(sequences);
    last_ = busy;
  }
  // Sequences a second of busy time; 0 while none was finished.
  double rate(double now) const {
    const double busy = busy_seconds(now);
    if (busy <= 0) return 0;
    const double seen = kMemory * (1 - std::exp(-busy / kMemory));
    return finished_ * std::exp(-(busy - last_) / kMemory) / seen;
  }
  // The header's value for a request of so many sequences that is refused now.
  int64_t refuse(double now, int64_t sequences) {
    const double each_second = rate(now);
    if (each_second <= 0) return kLeast;
    backlog_ =
        std::max(0.0, backlog_ - each_second * (now - asked_)) + static_cast<double>(sequences);
    asked_ = now;
    // A client who is told the most comes back by then; more of a backlog says nothing new.
    backlog_ = std::min(backlog_, each_second * static_cast<double>(kMost));
    return std::clamp(static_cast<int64_t>(std::ceil(backlog_ / each_second)), kLeast, kMost);
  }

 private:
  double busy_seconds(double now) const {
    return in_progress_ > 0 ? busy_ + std::max(0.0, now - since_) : busy_;
  }

  int64_t in_progress_ = 0;
  // Time with something in progress, up to `since_`.
  double busy_ = 0, since_ = 0;
  // Sequences finished, older ones less, as of busy time `last_`.
  double finished_ = 0, last_ = 0;
  // Refused sequences that are still to come back, as of `asked_`.
  double backlog_ = 0, asked_ = 0;
};

}  // namespace zipage::server
