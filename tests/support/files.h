// Files that tests make: a folder of their own, safetensors and GGUF files byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zipage::test {

// A folder that is removed at the end of the scope.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zipage-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Returns the path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + file(name));
    return file(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

template <typename T>
std::vector<T> read_values(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The little-endian bytes of a number.
template <typename T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A safetensors file of the given header and data.
inline std::string safetensors(std::string_view header, std::string_view data) {
  return bytes_of<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

// Builds a GGUF file in the order of the calls; every part can also be given raw, to be wrong.
class GgufBuilder {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  int64_t num_tensors = -1;  // -1: as many as there are
  int64_t num_keys = -1;

  static std::string text(std::string_view value) {
    return bytes_of<uint64_t>(value.size()) + std::string(value);
  }
  // `type` is GGUF's number.
  GgufBuilder& raw_key(std::string_view key, uint32_t type, std::string_view value) {
    keys_ += text(key) + bytes_of(type) + std::string(value);
    ++key_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, uint32_t value) {
    return raw_key(key, 4, bytes_of(value));
  }
  GgufBuilder& f32(std::string_view key, float value) { return raw_key(key, 6, bytes_of(value)); }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return raw_key(key, 8, text(value));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = bytes_of<uint32_t>(8) + bytes_of<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    return raw_key(key, 9, bytes);
  }
  GgufBuilder& raw_tensor(std::string_view name,
                          const std::vector<int64_t>& extents,
                          uint32_t type,
                          uint64_t offset) {
    infos_ += text(name) + bytes_of(static_cast<uint32_t>(extents.size()));
    for (const int64_t extent : extents) infos_ += bytes_of(extent);
    infos_ += bytes_of(type) + bytes_of(offset);
    ++tensor_count_;
    return *this;
  }
  // Extents in the file's order, the innermost first.
  GgufBuilder& tensor(std::string_view name,
                      const std::vector<int64_t>& extents,
                      uint32_t type,
                      std::string_view bytes) {
    pad(data_);
    raw_tensor(name, extents, type, data_.size());
    data_ += bytes;
    return *this;
  }
  std::string build() const {
    std::string file = magic + bytes_of(version);
    file += bytes_of(num_tensors < 0 ? tensor_count_ : num_tensors);
    file += bytes_of(num_keys < 0 ? key_count_ : num_keys);
    file += keys_ + infos_;
    pad(file);
    return file + data_;
  }

 private:
  void pad(std::string& bytes) const {
    if (alignment > 0) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  }

  std::string keys_, infos_, data_;
  int64_t key_count_ = 0;
  int64_t tensor_count_ = 0;
};

}  // namespace zipage::test
