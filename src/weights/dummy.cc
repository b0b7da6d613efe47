#include "weights/dummy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"

namespace zipage {
namespace {

constexpr size_t kPeriodPages = 4099;  // prime
constexpr float kAmplitude = 0.04f;

// A hash of a counter: splitmix64's finaliser.
uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0;
  for (const char c : name) hash = scramble(hash ^ static_cast<unsigned char>(c));
  return hash;
}

void store(std::byte* at, float value, DType dtype) {
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

void fill_random(std::byte* to, size_t bytes, DType dtype) {
  const auto width = static_cast<size_t>(packed_block_bytes(dtype));
  for (size_t i = 0; i < bytes / width; ++i) {
    const auto unit = static_cast<float>(scramble(i) >> 40) * 0x1p-24f;  // [0, 1)
    store(to + i * width, (2.0f * unit - 1.0f) * kAmplitude, dtype);
  }
}

class MemoryFile {
 public:
  explicit MemoryFile(size_t bytes) : fd_(::memfd_create("zipage-dummy-weights", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      const int reason = errno;
      if (fd_ >= 0) ::close(fd_);
      fail(StatusCode::kResourceExhausted, "cannot make a memory file of {} bytes: {}", bytes,
           std::strerror(reason));
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::byte* map(void* at, size_t bytes, int protection, int flags, int fd) {
  void* data = ::mmap(at, bytes, protection, flags, fd, 0);
  if (data == MAP_FAILED) {
    fail(StatusCode::kResourceExhausted, "cannot map {} bytes for dummy weights: {}", bytes,
         std::strerror(errno));
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

void DummySource::map_random(size_t bytes, DType dtype) {
  const size_t period_bytes = kPeriodPages * page_bytes_;
  const MemoryFile file(period_bytes);
  std::byte* once = map(nullptr, period_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  fill_random(once, period_bytes, dtype);
  ::munmap(once, period_bytes);
  const size_t num_periods = (bytes + period_bytes - 1) / period_bytes;
  const size_t total = num_periods * period_bytes;
  // The address range first, then the one buffer all over it.
  mapping_ = {map(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1),
              Unmap{total}};
  for (size_t at = 0; at < total; at += period_bytes) {
    map(mapping_.get() + at, period_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file.get());
  }
}

void DummySource::Unmap::operator()(std::byte* mapping) const { ::munmap(mapping, bytes); }

DummySource::DummySource(const std::string& path,
                         const std::vector<DummyTensor>& tensors,
                         DType dtype)
    : WeightSource(path), page_bytes_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
  ZIPAGE_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  int64_t most_random = 0;
  int64_t most_ones = 0;
  for (const DummyTensor& tensor : tensors) {
    int64_t& most = tensor.ones ? most_ones : most_random;
    most = std::max(most, num_elements(tensor.shape));
  }
  // Every tensor starts at a page of its own, up to a period into the mapping.
  map_random(static_cast<size_t>(dtype_bytes(dtype, most_random)) + kPeriodPages * page_bytes_,
             dtype);
  const auto width = static_cast<size_t>(packed_block_bytes(dtype));
  ones_ = std::make_unique<std::byte[]>(static_cast<size_t>(most_ones) * width);
  for (int64_t i = 0; i < most_ones; ++i)
    store(ones_.get() + static_cast<size_t>(i) * width, 1.0f, dtype);
  for (const DummyTensor& tensor : tensors) {
    Entry entry;
    entry.file = path;
    entry.tensor.name = tensor.name;
    entry.tensor.dtype = dtype;
    entry.tensor.shape = tensor.shape;
    entry.tensor.data = tensor.ones
                            ? ones_.get()
                            : mapping_.get() + hash_name(tensor.name) % kPeriodPages * page_bytes_;
    add(std::move(entry));
  }
}

}  // namespace zipage
