#include "base/mmap.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"

namespace zipage {
namespace {

// Closes a file descriptor at the end of the scope.
class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0) return;
    const int reason = errno;
    const bool absent = reason == ENOENT || reason == ENOTDIR;
    fail(absent ? StatusCode::kNotFound : StatusCode::kInvalidArgument, "cannot open '{}': {}",
         path, std::strerror(reason));
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

size_t regular_file_size(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_invalid("cannot stat '{}': {}", path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail_invalid("'{}' is a directory; expected a file", path);
  if (!S_ISREG(info.st_mode)) fail_invalid("'{}' is not a regular file", path);
  return static_cast<size_t>(info.st_size);
}

}  // namespace

FileImage FileImage::open(const std::string& path) {
  FileDescriptor file(path);
  FileImage image;
  image.path_ = path;
  const size_t size = regular_file_size(file.get(), path);
  if (size == 0) return image;  // mmap refuses length 0
  // Without access it takes no memory, and is not counted as if it did.
  void* data = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    fail(StatusCode::kResourceExhausted, "no address space for the {} bytes of '{}': {}", size,
         path, std::strerror(errno));
  }
  ::madvise(data, size, MADV_HUGEPAGE);  // advice: a refusal changes nothing
  image.data_ = static_cast<std::byte*>(data);
  image.size_ = size;
  image.fd_ = file.release();
  return image;
}

FileImage::~FileImage() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

size_t FileImage::offset_of(const std::byte* begin, size_t bytes) const {
  // As numbers: pointers into different objects have no order.
  const auto base = reinterpret_cast<uintptr_t>(data_);
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const bool inside =
      data_ != nullptr && first >= base && first - base <= size_ && bytes <= size_ - (first - base);
  return inside ? first - base : std::string::npos;
}

void FileImage::fetch(const std::byte* begin, size_t bytes) const {
  const size_t offset = offset_of(begin, bytes);
  if (offset == std::string::npos || bytes == 0) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t from = offset / page * page;
  if (::mprotect(data_ + from, offset + bytes - from, PROT_READ | PROT_WRITE) != 0) {
    fail(StatusCode::kResourceExhausted, "no memory for {} bytes of '{}': {}", bytes, path_,
         std::strerror(errno));
  }
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        ::pread(fd_, data_ + offset + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(StatusCode::kDataLoss, "cannot read '{}' at byte {}: {}", path_, offset + done,
           std::strerror(errno));
    }
    if (count == 0) {
      fail(StatusCode::kDataLoss,
           "'{}' ends at byte {} but had {} bytes when it was opened: it was cut while it was read",
           path_, offset + done, size_);
    }
    done += static_cast<size_t>(count);
  }
}

void FileImage::drop(const std::byte* begin, size_t bytes) const {
  const size_t offset = offset_of(begin, bytes);
  if (offset == std::string::npos) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t from = (offset + page - 1) / page * page;
  const size_t to = (offset + bytes) / page * page;
  if (from >= to) return;
  // Without access again, so that a read of what is gone is noticed.
  ::madvise(data_ + from, to - from, MADV_DONTNEED);
  ::mprotect(data_ + from, to - from, PROT_NONE);
}

void FileImage::swap(FileImage& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  const FileDescriptor file(path);
  const size_t size = regular_file_size(file.get(), path);
  if (size > max_bytes) {
    fail_invalid("'{}' has {} bytes; expected at most {}", path, size, max_bytes);
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_invalid("cannot read '{}': {}", path, std::strerror(errno));
    if (count == 0) {
      fail(StatusCode::kDataLoss, "'{}' ended after {} of {} bytes", path, done, size);
    }
    done += static_cast<size_t>(count);
  }
  return text;
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string join_path(const std::string& folder, std::string_view name) {
  std::string path = folder;
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

}  // namespace zipage
