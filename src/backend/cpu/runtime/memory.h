// Host memory of the CPU backend.
#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace zipage::cpu {

inline constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

// Aligned to kAlignment; large pieces lie on huge pages where the system has them and are touched
// at once, so that no step pays for page faults. Throws kResourceExhausted with both sizes when the
// memory is not there.
Buffer allocate_memory(size_t bytes);

// Memory for the inside of one op: grows to the largest request and stays.
class Scratch {
 public:
  // The contents do not survive the next call.
  std::byte* reserve(size_t bytes) {
    if (bytes > buffer_.bytes()) {
      buffer_ = Buffer();
      buffer_ = allocate_memory(bytes);
    }
    return buffer_.data();
  }

 private:
  Buffer buffer_;
};

}  // namespace zipage::cpu
