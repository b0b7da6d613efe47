// Counts by upper bound, as Prometheus wants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zipage::server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds = {})
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}

  void observe(double value, int64_t times = 1) {
    size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    counts_[i] += times;
    total_ += times;
    sum_ += value * static_cast<double>(times);
  }
  int64_t total() const { return total_; }
  double sum() const { return sum_; }
  const std::vector<double>& bounds() const { return bounds_; }
  // Not cumulative; the last is above every bound.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  int64_t total_ = 0;
  double sum_ = 0;
};

}  // namespace zipage::server
