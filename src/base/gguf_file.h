// The container format of GGUF files, versions 2 and 3: typed metadata and a list of tensors.
// Checks every count, length and offset against the size of the file, so that a hostile file is an
// Error and never a wild read. Does not know what the tensors' types mean: see weights/gguf.h.
//
//   GgufFile file = GgufFile::open("model.gguf");
//   int64_t layers = file.get_int("llama.block_count", 1, 1000);
//
// Threads: immutable once made; any thread may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap.h"

namespace zipage {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
// "u8", "string", ...
const char* to_string(GgufType type);

// A value of the metadata; points into the file.
struct GgufValue {
  GgufType type;
  // Of an array; otherwise `type`
  GgufType element_type;
  // Elements of an array; otherwise 1.
  uint64_t count;
  // The elements; strings with their lengths before them.
  std::span<const std::byte> bytes;
};

struct GgufTensorInfo {
  std::string_view name;
  // In the file's order: the innermost first; each at least 1.
  std::vector<int64_t> extents;
  // ggml's number.
  uint32_t type;
  // Bytes from the start of the data.
  uint64_t offset;
};

class GgufFile {
 public:
  static constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

  static GgufFile open(const std::string& path);
  // `file` must outlive the result; `path` is for messages.
  static GgufFile parse(std::span<const std::byte> file, const std::string& path);

  const std::string& path() const { return path_; }
  // Empty after parse().
  const FileImage& image() const { return image_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<GgufTensorInfo>& tensors() const { return tensors_; }
  // What tensor offsets count from.
  std::span<const std::byte> data() const { return data_; }
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }

  // find_*: nothing when the key is absent; get_*: kDataLoss then. Both: kDataLoss for another
  // type, or a value out of range; the message names the file, the key and the value.
  std::optional<int64_t> find_int(std::string_view key,
                                  int64_t min = 0,
                                  int64_t max = kMaxInt) const;
  std::optional<double> find_double(std::string_view key, double min, double max) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_ints(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;
  int64_t get_int(std::string_view key, int64_t min = 0, int64_t max = kMaxInt) const;
  double get_double(std::string_view key, double min, double max) const;
  std::string_view get_string(std::string_view key) const;
  std::vector<std::string_view> get_strings(std::string_view key) const;

 private:
  class Reader;

  GgufFile() = default;
  void read_all(std::span<const std::byte> file);
  void read_metadata(Reader& reader, uint64_t count);
  void read_tensors(Reader& reader, uint64_t count);
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key,
                              const GgufValue& value,
                              const char* expected) const;

  FileImage image_;
  std::string path_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensorInfo> tensors_;
  std::span<const std::byte> data_;
};

}  // namespace zipage
