// How many bytes of request bodies the server keeps at once, those that are still coming included.
//
// Without it a client needs only connections to fill the memory: each may hold a body of the largest
// size for as long as a request may take to come. The last quarter is kept for small bodies, so that
// ordinary requests go on while large ones are refused.
//
//   BodyBudget::Lease lease(budget);
//   if (!lease.grow_to(body.size())) refuse_with_503();
//
// Threads: a budget any; a lease one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace zipage::server {

class BodyBudget {
 public:
  static constexpr uint64_t kSmallBodyBytes = 64 << 10;

  explicit BodyBudget(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  uint64_t most_bytes() const { return most_bytes_; }
  // Whether a body of so many bytes would find room now.
  bool has_room(uint64_t bytes) const { return used_bytes() + bytes <= share_of(bytes); }

  // What one body takes. Gives it back when it goes.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { budget_->used_bytes_.fetch_sub(bytes_, std::memory_order_relaxed); }

    // False, and nothing is taken, when the budget has no room for that.
    bool grow_to(uint64_t bytes) {
      if (bytes <= bytes_) return true;
      const uint64_t more = bytes - bytes_;
      const uint64_t before = budget_->used_bytes_.fetch_add(more, std::memory_order_relaxed);
      if (before + more > budget_->share_of(bytes)) {
        budget_->used_bytes_.fetch_sub(more, std::memory_order_relaxed);
        return false;
      }
      bytes_ = bytes;
      return true;
    }

   private:
    const std::shared_ptr<BodyBudget> budget_;
    uint64_t bytes_ = 0;
  };

 private:
  uint64_t share_of(uint64_t body_bytes) const {
    return body_bytes <= kSmallBodyBytes ? most_bytes_ : most_bytes_ - most_bytes_ / 4;
  }

  const uint64_t most_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
};

}  // namespace zipage::server
