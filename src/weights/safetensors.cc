#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "weights/json.h"

namespace zipage {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr int64_t kMaxExtent = int64_t{1} << 48;

struct TypeName {
  std::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;
};
// A type of the format that is not listed is as unusable as those without a dtype; only its size
// cannot be checked.
constexpr std::array<TypeName, 15> kTypes = {{
    {"F32", 4, DType::kF32},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"F8_E4M3", 1, DType::kF8E4M3},
    {"I8", 1, DType::kI8},
    {"I32", 4, DType::kI32},
    {"I64", 8, DType::kI64},
    {"U8", 1, DType::kU8},
    {"F64", 8, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt},
}};

// The length of the header stands first.
constexpr size_t kLengthBytes = sizeof(uint64_t);

uint64_t read_length(std::span<const std::byte> file) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  return bytes;
}

// As much as parse_safetensors() reads.
void fetch_header(const FileImage& file) {
  if (file.size() < kLengthBytes) return;
  const std::byte* begin = file.data().data();
  file.fetch(begin, kLengthBytes);
  const uint64_t rest = file.size() - kLengthBytes;
  file.fetch(begin + kLengthBytes, std::min({read_length(file.data()), rest, kMaxHeaderBytes}));
}

struct Placed {
  SafetensorsEntry entry;
  int64_t begin, end;  // bytes of the data section
};

Placed parse_entry(const std::string& name,
                   const JsonValue& info,
                   const std::string& path,
                   int64_t data_bytes) {
  const JsonValue type_field = info.at("dtype");
  const std::string type_name = type_field.as_string();
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeName& known) { return known.name == type_name; });
  const bool known = type != kTypes.end();
  Placed placed{};
  HostTensor& tensor = placed.entry.tensor;
  tensor.name = name;
  if (known && type->dtype) {
    tensor.dtype = *type->dtype;
  } else {
    placed.entry.unsupported_type = fmt::format("{} (supported: BF16, F16 and F32)", type_name);
  }
  int64_t bytes = known ? type->bytes : 1;
  for (const JsonValue& extent : info.at("shape").elements()) {
    tensor.shape.push_back(extent.as_int(0, kMaxExtent));
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      fail(StatusCode::kDataLoss, "{}: tensor '{}' has shape {}, more bytes than 2^63", path, name,
           info.at("shape").text());
    }
  }
  const JsonValue offsets_field = info.at("data_offsets");
  const std::vector<JsonValue> offsets = offsets_field.elements();
  if (offsets.size() != 2) offsets_field.fail_expected("[begin, end]");
  placed.begin = offsets[0].as_int(0, INT64_MAX);
  placed.end = offsets[1].as_int(0, INT64_MAX);
  if (placed.begin > placed.end || placed.end > data_bytes) {
    fail(StatusCode::kDataLoss,
         "{}: tensor '{}' has data_offsets [{}, {}]; the file holds {} bytes of data", path, name,
         placed.begin, placed.end, data_bytes);
  }
  if (known && placed.end - placed.begin != bytes) {
    fail(StatusCode::kDataLoss, "{}: tensor '{}' has {} bytes, but {} of shape {} takes {}", path,
         name, placed.end - placed.begin, type_name, to_string(tensor.shape), bytes);
  }
  return placed;
}

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors(std::span<const std::byte> file,
                                                const std::string& path) {
  if (file.size() < kLengthBytes) {
    fail(StatusCode::kDataLoss, "{}: {} bytes are too few for a safetensors file", path,
         file.size());
  }
  const uint64_t header_bytes = read_length(file);
  const uint64_t rest = file.size() - kLengthBytes;
  if (header_bytes > std::min(rest, kMaxHeaderBytes)) {
    fail(StatusCode::kDataLoss,
         "{}: header of {} bytes in a file of {}; truncated, or not a safetensors file", path,
         header_bytes, file.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                                header_bytes);
  if (header.empty() || header.front() != '{') {
    fail(StatusCode::kDataLoss, "{}: the header does not start with '{{'", path);
  }
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  std::vector<Placed> placed;
  for (const auto& [name, info] : JsonValue::parse(header, path).members()) {
    if (name == "__metadata__") {
      if (info.is_null()) continue;
      for (const auto& [key, value] : info.members()) value.as_string();
      continue;
    }
    placed.push_back(parse_entry(name, info, path, static_cast<int64_t>(data.size())));
  }
  // The format allows neither overlaps nor holes.
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<SafetensorsEntry> entries;
  int64_t next = 0;
  for (Placed& item : placed) {
    if (item.begin != next) {
      fail(StatusCode::kDataLoss, "{}: tensor '{}' begins at byte {} of the data; expected {} ({})",
           path, item.entry.tensor.name, item.begin, next, item.begin < next ? "overlap" : "hole");
    }
    next = item.end;
    item.entry.tensor.data = data.data() + item.begin;
    entries.push_back(std::move(item.entry));
  }
  if (next != static_cast<int64_t>(data.size())) {
    fail(StatusCode::kDataLoss, "{}: the tensors take {} bytes of data, but the file holds {}",
         path, next, data.size());
  }
  return entries;
}

std::unique_ptr<SafetensorsSource> SafetensorsSource::open(const std::string& folder) {
  if (!is_directory(folder)) {
    fail(StatusCode::kNotFound, "'{}' is not a folder of safetensors files", folder);
  }
  std::unique_ptr<SafetensorsSource> source(new SafetensorsSource(folder));
  const std::string single = join_path(folder, "model.safetensors");
  const std::string index = join_path(folder, "model.safetensors.index.json");
  if (is_regular_file(single)) {
    source->add_file(single, {});
  } else if (is_regular_file(index)) {
    source->add_shards(folder, index);
  } else {
    fail(StatusCode::kNotFound,
         "'{}' has neither model.safetensors nor model.safetensors.index.json", folder);
  }
  return source;
}

void SafetensorsSource::fetch(const HostTensor& tensor) const {
  for (const FileImage& file : files_) {
    file.fetch(tensor.data, static_cast<size_t>(tensor.bytes()));
  }
}

void SafetensorsSource::release(const HostTensor& tensor) const {
  for (const FileImage& file : files_) {
    file.drop(tensor.data, static_cast<size_t>(tensor.bytes()));
  }
}

void SafetensorsSource::add_file(const std::string& path, const Places& places) {
  const FileImage& file = files_.emplace_back(FileImage::open(path));
  fetch_header(file);
  for (SafetensorsEntry& parsed : parse_safetensors(file.data(), path)) {
    const auto place = places.find(parsed.tensor.name);
    if (place != places.end() && place->second != path) continue;
    add({std::move(parsed.tensor), path, std::move(parsed.unsupported_type)});
  }
}

void SafetensorsSource::add_shards(const std::string& folder, const std::string& index_path) {
  const JsonValue index = JsonValue::read(index_path);
  std::map<std::string, std::vector<std::string>> shards;  // file -> tensors
  Places places;
  for (const auto& [name, shard] : index.at("weight_map").members()) {
    const std::string file = shard.as_string();
    if (file.empty() || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos) {
      shard.fail_expected("the name of a file in the same folder");
    }
    shards[file].push_back(name);
    places.emplace(name, join_path(folder, file));
  }
  if (shards.empty()) index.at("weight_map").fail_expected("at least one tensor");
  for (const auto& [file, here] : shards) {
    const std::string path = join_path(folder, file);
    if (!is_regular_file(path)) {
      for (const std::string& name : here) {
        note_absent(
            name, fmt::format("{} places it in '{}', and there is no such file", index_path, file));
      }
      continue;
    }
    add_file(path, places);
    for (const std::string& name : here) {
      if (entry(name) == nullptr) {
        note_absent(name, fmt::format("{} places it in '{}', which lacks it", index_path, file));
      }
    }
  }
  if (num_tensors() == 0) {
    const auto& [file, here] = *shards.begin();
    fail(StatusCode::kNotFound, "{}: tensor '{}' is in '{}', and there is no such file", index_path,
         here.front(), file);
  }
}

}  // namespace zipage
