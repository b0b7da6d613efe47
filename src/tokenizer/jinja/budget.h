// What one rendering may use up: work and memory. Everything a template makes the interpreter do is
// charged here, in proportion to what it costs, before it is done.
//
//   budget.make(text.size());   // about to make so many bytes
//   budget.read(text.size());   // about to look at so many bytes
//   budget.walk(text.size());   // about to decode them character by character
//   budget.work(items.size());  // about to visit so many values
//
// One unit of work takes about 0.2 microseconds. Memory is counted as it is made and never given
// back, which is simple and bounds what is held. One thread, that of the rendering.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace zipage::jinja {

// What a hostile template may use up before it fails.
struct Limits {
  int64_t max_steps = 5'000'000;           // units of work; an evaluated expression is one
  int64_t max_bytes = int64_t{256} << 20;  // made by operations, all together
  int max_depth = 400;                     // nested evaluations
};

class Budget {
 public:
  explicit Budget(const Limits& limits)
      : work_left_(static_cast<uint64_t>(limits.max_steps)),
        bytes_left_(static_cast<uint64_t>(limits.max_bytes)),
        limits_(limits) {}

  void work(uint64_t units) {
    if (units > work_left_) {
      fail(StatusCode::kResourceExhausted, "the template takes more than {} steps",
           limits_.max_steps);
    }
    work_left_ -= units;
  }
  void make(uint64_t bytes) {
    if (bytes > bytes_left_) {
      fail(StatusCode::kResourceExhausted, "the template makes more than {} bytes",
           limits_.max_bytes);
    }
    bytes_left_ -= bytes;
    work(bytes / 128);
  }
  void read(uint64_t bytes) { work(bytes / 128); }
  void walk(uint64_t bytes) { work(bytes / 16); }

 private:
  uint64_t work_left_, bytes_left_;
  Limits limits_;
};

}  // namespace zipage::jinja
