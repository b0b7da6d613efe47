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
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

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

MappedFile MappedFile::open(const std::string& path) {
  const FileDescriptor file(path);
  MappedFile mapped;
  mapped.path_ = path;
  const size_t size = regular_file_size(file.get(), path);
  if (size == 0) return mapped;  // mmap refuses length 0
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    fail(StatusCode::kResourceExhausted, "cannot map the {} bytes of '{}': {}", size, path,
         std::strerror(errno));
  }
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(const std::byte* begin, size_t bytes) const {
  // As numbers: pointers into different objects have no order.
  const auto base = reinterpret_cast<uintptr_t>(data_);
  const auto first = reinterpret_cast<uintptr_t>(begin);
  if (data_ == nullptr || first < base || first - base > size_ || bytes > size_ - (first - base))
    return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = (first + page - 1) / page * page;
  const uintptr_t to = (first + bytes) / page * page;
  // Advice: a refusal changes nothing.
  if (from < to) ::madvise(const_cast<std::byte*>(data_ + (from - base)), to - from, MADV_DONTNEED);
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
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
