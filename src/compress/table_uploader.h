// Small tables from the host to the device, in stream order.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "backend/backend.h"

namespace zipage {

// One device buffer, which work on the stream reads after the copy, and a few pinned host buffers,
// so that the host seldom waits for an earlier copy. One stream.
class TableUploader {
 public:
  TableUploader(Backend& backend, size_t bytes);
  static size_t host_bytes(size_t bytes) { return kNumHostBuffers * bytes; }

  size_t device_bytes() const { return device_.bytes(); }

  // A host buffer that no copy reads any more.
  std::byte* acquire();
  // Copies the first `bytes` of the acquired buffer; the result is valid on `stream` until the next
  // upload.
  const std::byte* upload(size_t bytes, Stream& stream);

 private:
  static constexpr size_t kNumHostBuffers = 4;
  struct HostBuffer {
    Buffer buffer;
    std::unique_ptr<Event> copied;
    bool in_use = false;
  };

  Backend& backend_;
  Buffer device_;
  std::array<HostBuffer, kNumHostBuffers> host_;
  size_t current_ = 0;
};

}  // namespace zipage
