#include "compress/table_uploader.h"

#include "base/check.h"

namespace zipage {

TableUploader::TableUploader(Backend& backend, size_t bytes)
    : backend_(backend), device_(backend.allocate(bytes, MemorySpace::kDevice)) {
  for (HostBuffer& host : host_) {
    host.buffer = backend.allocate(bytes, MemorySpace::kHost);
    host.copied = backend.create_event();
  }
}

std::byte* TableUploader::acquire() {
  current_ = (current_ + 1) % kNumHostBuffers;
  HostBuffer& host = host_[current_];
  if (host.in_use) host.copied->wait();
  host.in_use = false;
  return host.buffer.data();
}

const std::byte* TableUploader::upload(size_t bytes, Stream& stream) {
  HostBuffer& host = host_[current_];
  ZIPAGE_CHECK_LE(bytes, device_.bytes());
  backend_.copy(device_.data(), host.buffer.data(), bytes, stream);
  // Recorded before the work that reads the tables: that work is ordered by the stream, and its
  // failure is left to the caller's own event.
  host.copied->record(stream);
  host.in_use = true;
  return device_.data();
}

}  // namespace zipage
