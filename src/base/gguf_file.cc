#include "base/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"

namespace zipage {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
constexpr int64_t kMaxExtent = int64_t{1} << 48;

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie");

// Bytes of a scalar; 0 for strings and arrays.
uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Nothing for a type that is no integer, or a value of 2^63 or more.
std::optional<int64_t> load_int(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(at);
    case GgufType::kI8:
      return load<int8_t>(at);
    case GgufType::kU16:
      return load<uint16_t>(at);
    case GgufType::kI16:
      return load<int16_t>(at);
    case GgufType::kU32:
      return load<uint32_t>(at);
    case GgufType::kI32:
      return load<int32_t>(at);
    case GgufType::kI64:
      return load<int64_t>(at);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(at);
      if (value > static_cast<uint64_t>(GgufFile::kMaxInt)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> load_double(GgufType type, const std::byte* at) {
  if (type == GgufType::kF32) return load<float>(at);
  if (type == GgufType::kF64) return load<double>(at);
  if (const auto integer = load_int(type, at)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

const char* to_string(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown";
}

// Takes bytes from the front; never past the end.
class GgufFile::Reader {
 public:
  // `image`: where the bytes are fetched from before they are read; null: they are there.
  Reader(std::span<const std::byte> file, const std::string& path, const FileImage* image)
      : file_(file), path_(path), image_(image) {}

  uint64_t position() const { return position_; }
  uint64_t rest() const { return file_.size() - position_; }

  std::span<const std::byte> take(uint64_t bytes, std::string_view what) {
    if (bytes > rest()) {
      fail(StatusCode::kDataLoss, "{}: {} at byte {} takes {} bytes; the file ends after {}", path_,
           what, position_, bytes, rest());
    }
    const auto taken = file_.subspan(position_, bytes);
    position_ += bytes;
    fetch_to(position_);
    return taken;
  }
  // What is left, unread.
  std::span<const std::byte> take_rest() {
    return file_.subspan(std::exchange(position_, file_.size()));
  }
  template <typename T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }
  std::string_view text(std::string_view what) {
    const auto bytes = number<uint64_t>(what);
    return as_text(take(bytes, what));
  }
  GgufType type(std::string_view what) {
    const uint64_t at = position_;
    const auto value = number<uint32_t>(what);
    if (value > static_cast<uint32_t>(GgufType::kF64)) {
      fail(StatusCode::kDataLoss, "{}: {} at byte {} has type {}; expected 0 to 12", path_, what,
           at, value);
    }
    return static_cast<GgufType>(value);
  }
  // `count` things of at least `min_bytes` each must still fit.
  void check_count(uint64_t count, uint64_t min_bytes, std::string_view what) const {
    if (count > rest() / min_bytes) {
      fail(StatusCode::kDataLoss, "{}: {} {} cannot fit into the {} bytes left", path_, count, what,
           rest());
    }
  }
  // Elements of one type, strings with their lengths.
  std::span<const std::byte> elements(GgufType type, uint64_t count, std::string_view what) {
    const uint64_t begin = position_;
    if (type == GgufType::kString) {
      check_count(count, sizeof(uint64_t), "strings");
      for (uint64_t i = 0; i < count; ++i) text(what);
    } else {
      check_count(count, scalar_bytes(type), "array elements");
      const auto values = take(count * scalar_bytes(type), what);
      if (type == GgufType::kBool) check_bools(values, what);
    }
    return file_.subspan(begin, position_ - begin);
  }

 private:
  void check_bools(std::span<const std::byte> values, std::string_view what) const {
    for (const std::byte value : values) {
      if (std::to_integer<int>(value) <= 1) continue;
      fail(StatusCode::kDataLoss, "{}: {} is a bool of value {}; expected 0 or 1", path_, what,
           std::to_integer<int>(value));
    }
  }

  void fetch_to(uint64_t end) {
    constexpr uint64_t kAhead = 1 << 20;
    if (image_ == nullptr || end <= fetched_) return;
    end = std::max(end, std::min<uint64_t>(fetched_ + kAhead, file_.size()));
    image_->fetch(file_.data() + fetched_, end - fetched_);
    fetched_ = end;
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  const FileImage* image_;
  uint64_t position_ = 0;
  uint64_t fetched_ = 0;
};

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file;
  file.image_ = FileImage::open(path);
  file.path_ = path;
  file.read_all(file.image_.data());
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, const std::string& path) {
  GgufFile file;
  file.path_ = path;
  file.read_all(bytes);
  return file;
}

void GgufFile::read_all(std::span<const std::byte> file) {
  Reader reader(file, path_, image_.size() > 0 ? &image_ : nullptr);
  if (as_text(reader.take(4, "the magic number")) != "GGUF") {
    fail(StatusCode::kDataLoss, "{}: the file does not start with 'GGUF'", path_);
  }
  version_ = reader.number<uint32_t>("the version");
  if (version_ != 2 && version_ != 3) {
    const bool swapped = (version_ & 0xffffu) == 0;
    fail(StatusCode::kUnimplemented, "{}: GGUF version {:#x}{}; supported: 2 and 3", path_,
         version_, swapped ? " (a big-endian file)" : "");
  }
  const auto num_tensors = reader.number<uint64_t>("the number of tensors");
  const auto num_keys = reader.number<uint64_t>("the number of metadata keys");
  read_metadata(reader, num_keys);
  alignment_ = static_cast<uint64_t>(find_int("general.alignment", 1, 1 << 20).value_or(32));
  if (!std::has_single_bit(alignment_)) {
    fail(StatusCode::kDataLoss, "{}: key 'general.alignment' is {}; expected a power of two", path_,
         alignment_);
  }
  read_tensors(reader, num_tensors);
  if (num_tensors == 0) return;
  const uint64_t padding = (alignment_ - reader.position() % alignment_) % alignment_;
  reader.take(padding, "the padding before the data");
  data_ = reader.take_rest();
}

void GgufFile::read_metadata(Reader& reader, uint64_t count) {
  constexpr uint64_t kMinBytes = 8 + 4 + 1;  // length, type, value
  reader.check_count(count, kMinBytes, "metadata keys");
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = reader.text(fmt::format("the name of metadata key {}", i));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      fail(StatusCode::kDataLoss, "{}: the name of metadata key {} has {} bytes; expected 1 to {}",
           path_, i, key.size(), kMaxKeyBytes);
    }
    const std::string what = fmt::format("key '{}'", key);
    GgufValue value{};
    value.type = reader.type(what);
    value.element_type = value.type;
    value.count = 1;
    if (value.type == GgufType::kArray) {
      value.element_type = reader.type(what);
      value.count = reader.number<uint64_t>(what);
      if (value.element_type == GgufType::kArray) {
        fail(StatusCode::kUnimplemented, "{}: {} is an array of arrays, which is not supported",
             path_, what);
      }
    }
    value.bytes = reader.elements(value.element_type, value.count, what);
    if (!metadata_.emplace(key, value).second) {
      fail(StatusCode::kDataLoss, "{}: {} appears twice", path_, what);
    }
  }
}

void GgufFile::read_tensors(Reader& reader, uint64_t count) {
  constexpr uint64_t kMinBytes = 8 + 4 + 8 + 4 + 8;  // length, dims, one extent, type, offset
  reader.check_count(count, kMinBytes, "tensors");
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensorInfo info{};
    info.name = reader.text(fmt::format("the name of tensor {}", i));
    if (info.name.empty() || info.name.size() > kMaxTensorNameBytes) {
      fail(StatusCode::kDataLoss, "{}: the name of tensor {} has {} bytes; expected 1 to {}", path_,
           i, info.name.size(), kMaxTensorNameBytes);
    }
    const std::string what = fmt::format("tensor '{}'", info.name);
    if (!names.insert(info.name).second) {
      fail(StatusCode::kDataLoss, "{}: {} appears twice", path_, what);
    }
    const auto num_dims = reader.number<uint32_t>(what);
    if (num_dims < 1 || num_dims > kMaxDims) {
      fail(StatusCode::kDataLoss, "{}: {} has {} dimensions; expected 1 to {}", path_, what,
           num_dims, kMaxDims);
    }
    for (uint32_t dim = 0; dim < num_dims; ++dim) {
      const auto extent = static_cast<int64_t>(reader.number<uint64_t>(what));
      if (extent < 1 || extent > kMaxExtent) {
        fail(StatusCode::kDataLoss, "{}: {} has extent {} in dimension {}; expected 1 to {}", path_,
             what, static_cast<uint64_t>(extent), dim, kMaxExtent);
      }
      info.extents.push_back(extent);
    }
    info.type = reader.number<uint32_t>(what);
    info.offset = reader.number<uint64_t>(what);
    if (info.offset % alignment_ != 0) {
      fail(StatusCode::kDataLoss, "{}: {} has offset {}; expected a multiple of {}", path_, what,
           info.offset, alignment_);
    }
    tensors_.push_back(std::move(info));
  }
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = metadata_.find(key);
  return at == metadata_.end() ? nullptr : &at->second;
}

void GgufFile::fail_missing(std::string_view key) const {
  fail(StatusCode::kDataLoss, "{}: key '{}' is missing", path_, key);
}

void GgufFile::fail_type(std::string_view key, const GgufValue& value, const char* expected) const {
  const bool array = value.type == GgufType::kArray;
  fail(StatusCode::kDataLoss, "{}: key '{}' is {}{}; expected {}", path_, key,
       array ? "an array of " : "of type ", to_string(value.element_type), expected);
}

std::optional<int64_t> GgufFile::find_int(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto integer = load_int(value->type, value->bytes.data());
  if (!integer) fail_type(key, *value, "an integer below 2^63");
  if (*integer < min || *integer > max) {
    fail(StatusCode::kDataLoss, "{}: key '{}' is {}; expected {} to {}", path_, key, *integer, min,
         max);
  }
  return integer;
}

std::optional<double> GgufFile::find_double(std::string_view key, double min, double max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = load_double(value->type, value->bytes.data());
  if (!number) fail_type(key, *value, "a number");
  if (!(*number >= min && *number <= max)) {
    fail(StatusCode::kDataLoss, "{}: key '{}' is {}; expected {} to {}", path_, key, *number, min,
         max);
  }
  return number;
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) fail_type(key, *value, "a bool");
  return load<uint8_t>(value->bytes.data()) != 0;
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) fail_type(key, *value, "a string");
  return as_text(value->bytes.subspan(sizeof(uint64_t)));
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray || value->element_type != GgufType::kString) {
    fail_type(key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  std::span<const std::byte> rest = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(rest.data());
    rest = rest.subspan(sizeof length);
    strings.push_back(as_text(rest.first(length)));
    rest = rest.subspan(length);
  }
  return strings;
}

std::optional<std::vector<int64_t>> GgufFile::find_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray) fail_type(key, *value, "an array of integers");
  const uint64_t width = scalar_bytes(value->element_type);
  std::vector<int64_t> integers;
  integers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = load_int(value->element_type, value->bytes.data() + i * width);
    if (!integer) fail_type(key, *value, "an array of integers below 2^63");
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<float>> GgufFile::find_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray) fail_type(key, *value, "an array of numbers");
  const uint64_t width = scalar_bytes(value->element_type);
  std::vector<float> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = load_double(value->element_type, value->bytes.data() + i * width);
    if (!number) fail_type(key, *value, "an array of numbers");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

int64_t GgufFile::get_int(std::string_view key, int64_t min, int64_t max) const {
  if (const auto value = find_int(key, min, max)) return *value;
  fail_missing(key);
}

double GgufFile::get_double(std::string_view key, double min, double max) const {
  if (const auto value = find_double(key, min, max)) return *value;
  fail_missing(key);
}

std::string_view GgufFile::get_string(std::string_view key) const {
  if (const auto value = find_string(key)) return *value;
  fail_missing(key);
}

std::vector<std::string_view> GgufFile::get_strings(std::string_view key) const {
  if (auto value = find_strings(key)) return *std::move(value);
  fail_missing(key);
}

}  // namespace zipage
