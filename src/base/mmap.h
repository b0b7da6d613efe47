// Files of a model: large ones read piece by piece into a place of their own (FileImage), small ones
// read whole.
//
// Why no file is mapped: reading a mapping of a file that another process has cut short raises
// SIGBUS, which ends the program. A read that comes back short is an error that names the file.
//
// Threads: one thread fetches and drops; what is there may be read by any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace zipage {

// Move-only. The bytes of a file at fixed addresses: address space for all of them, memory only for
// those that were fetched. Anything else must not be touched. The bytes stay where they are when
// the object moves.
//
//   const FileImage image = FileImage::open(path);
//   image.fetch(image.data().data() + 8, 100);   // now these 100 bytes may be read
//   image.drop(image.data().data() + 8, 100);    // their memory goes back to the system
class FileImage {
 public:
  FileImage() = default;
  // Throws kNotFound (no such file), or kInvalidArgument (no regular file, no permission, ...).
  static FileImage open(const std::string& path);
  FileImage(FileImage&& other) noexcept { swap(other); }
  FileImage& operator=(FileImage&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FileImage();

  std::span<const std::byte> data() const { return {data_, size_}; }
  // When it was opened.
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Reads a range from the file. Ranges outside of it, such as copies elsewhere, are left alone.
  // Throws kDataLoss when the file has become too short, or cannot be read.
  void fetch(const std::byte* begin, size_t bytes) const;
  // Gives back the memory of the whole pages of a range; it must be fetched again before it is
  // read.
  void drop(const std::byte* begin, size_t bytes) const;

 private:
  void swap(FileImage& other) noexcept;
  // The offset of a range, or npos if it is not in the image.
  size_t offset_of(const std::byte* begin, size_t bytes) const;

  std::string path_;
  int fd_ = -1;
  // Null for an empty file.
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file. Throws as FileImage::open does, and kInvalidArgument above `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes = size_t{256} << 20);

bool is_regular_file(const std::string& path);
bool is_directory(const std::string& path);
// "folder/name", with one slash between them.
std::string join_path(const std::string& folder, std::string_view name);

}  // namespace zipage
