// Files of a model: mapped read-only (MappedFile), or read whole when they are small.
//
// Threads: a mapping may be read by any thread; its owner moves or destroys it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace zipage {

// Move-only owner of a read-only mapping of a whole file. The bytes stay where they are when the
// object moves. A file that another process shortens while it is mapped is beyond our help
// (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;
  // Throws kNotFound (no such file), or kInvalidArgument (no regular file, no permission, ...).
  static MappedFile open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> data() const { return {data_, size_}; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Lets the system take back the memory behind the whole pages of a range that is not needed soon;
  // a later read brings it back from the file. Bytes outside the mapping are left alone.
  void drop(const std::byte* begin, size_t bytes) const;

 private:
  void swap(MappedFile& other) noexcept;

  std::string path_;
  // Null for an empty file.
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file. Throws as MappedFile::open does, and kInvalidArgument above `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes = size_t{256} << 20);

bool is_regular_file(const std::string& path);
bool is_directory(const std::string& path);
// "folder/name", with one slash between them.
std::string join_path(const std::string& folder, std::string_view name);

}  // namespace zipage
