#include "weights/gguf.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace zipage {
namespace {

struct NumberedType {
  uint32_t number;
  GgmlType type;
};
constexpr std::array<NumberedType, 34> kTypes = {{
    {0, {"F32", DType::kF32}},       {1, {"F16", DType::kF16}},
    {2, {"Q4_0", DType::kQ4_0}},     {3, {"Q4_1", DType::kQ4_1}},
    {6, {"Q5_0", DType::kQ5_0}},     {7, {"Q5_1", DType::kQ5_1}},
    {8, {"Q8_0", DType::kQ8_0}},     {9, {"Q8_1", std::nullopt}},
    {10, {"Q2_K", std::nullopt}},    {11, {"Q3_K", std::nullopt}},
    {12, {"Q4_K", DType::kQ4_K}},    {13, {"Q5_K", DType::kQ5_K}},
    {14, {"Q6_K", DType::kQ6_K}},    {15, {"Q8_K", std::nullopt}},
    {16, {"IQ2_XXS", std::nullopt}}, {17, {"IQ2_XS", std::nullopt}},
    {18, {"IQ3_XXS", std::nullopt}}, {19, {"IQ1_S", std::nullopt}},
    {20, {"IQ4_NL", std::nullopt}},  {21, {"IQ3_S", std::nullopt}},
    {22, {"IQ2_S", std::nullopt}},   {23, {"IQ4_XS", std::nullopt}},
    {24, {"I8", DType::kI8}},        {25, {"I16", std::nullopt}},
    {26, {"I32", DType::kI32}},      {27, {"I64", DType::kI64}},
    {28, {"F64", std::nullopt}},     {29, {"IQ1_M", std::nullopt}},
    {30, {"BF16", DType::kBF16}},    {34, {"TQ1_0", std::nullopt}},
    {35, {"TQ2_0", std::nullopt}},   {39, {"MXFP4", std::nullopt}},
    {40, {"NVFP4", std::nullopt}},   {41, {"Q1_0", std::nullopt}},
}};

constexpr std::string_view kSupportedTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";

struct Extent {
  uint64_t begin, end;  // bytes of the data
  std::string_view name;
};

uint64_t tensor_bytes(const GgufFile& file, const GgufTensorInfo& info, DType dtype) {
  const int64_t block = packed_block_elements(dtype);
  if (info.extents.front() % block != 0) {
    fail(StatusCode::kDataLoss, "{}: tensor '{}' has rows of {} elements; {} packs {} a block",
         file.path(), info.name, info.extents.front(), to_string(dtype), block);
  }
  int64_t bytes = info.extents.front() / block;
  bool overflow = __builtin_mul_overflow(bytes, packed_block_bytes(dtype), &bytes);
  for (size_t dim = 1; dim < info.extents.size(); ++dim) {
    overflow = overflow || __builtin_mul_overflow(bytes, info.extents[dim], &bytes);
  }
  if (overflow) {
    fail(StatusCode::kDataLoss, "{}: tensor '{}' of shape {} takes more than 2^63 bytes",
         file.path(), info.name, to_string(Shape(info.extents.rbegin(), info.extents.rend())));
  }
  return static_cast<uint64_t>(bytes);
}

void check_overlaps(std::vector<Extent>& extents, const std::string& path) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    const Extent& last = extents[i - 1];
    if (extents[i].begin >= last.end) continue;
    fail(StatusCode::kDataLoss,
         "{}: tensor '{}' begins at byte {} of the data; tensor '{}' ends at {} (overlap)", path,
         extents[i].name, extents[i].begin, last.name, last.end);
  }
}

}  // namespace

std::optional<GgmlType> ggml_type(uint32_t number) {
  for (const NumberedType& known : kTypes) {
    if (known.number == number) return known.type;
  }
  return std::nullopt;
}

std::unique_ptr<GgufSource> GgufSource::open(const std::string& path) {
  constexpr int64_t kMaxParts = 99999;
  std::vector<GgufFile> files;
  files.push_back(GgufFile::open(path));
  const int64_t num_parts = files.front().find_int("split.count", 0, kMaxParts).value_or(0);
  if (num_parts > 1) {
    const std::string suffix = fmt::format("-00001-of-{:05}.gguf", num_parts);
    if (!path.ends_with(suffix)) {
      fail_invalid("'{}' is one of {} parts; expected the first, whose name ends with '{}'", path,
                   num_parts, suffix);
    }
    const std::string stem = path.substr(0, path.size() - suffix.size());
    for (int64_t part = 2; part <= num_parts; ++part) {
      files.push_back(GgufFile::open(fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, num_parts)));
    }
  }
  return std::make_unique<GgufSource>(std::move(files));
}

GgufSource::GgufSource(std::vector<GgufFile> files)
    : WeightSource(files.at(0).path()), files_(std::move(files)) {
  for (size_t i = 0; i < files_.size(); ++i) {
    const int64_t part = files_[i].find_int("split.no").value_or(0);
    if (part != static_cast<int64_t>(i)) {
      fail(StatusCode::kDataLoss, "{}: key 'split.no' is {}; expected {}", files_[i].path(), part,
           i);
    }
    add_tensors(files_[i]);
  }
  const auto expected = file().find_int("split.tensors.count");
  if (expected && *expected != static_cast<int64_t>(num_tensors())) {
    fail(StatusCode::kDataLoss, "{}: key 'split.tensors.count' is {}; the {} parts hold {} tensors",
         path(), *expected, files_.size(), num_tensors());
  }
}

void GgufSource::fetch(const HostTensor& tensor) const {
  for (const GgufFile& part : files_) {
    part.image().fetch(tensor.data, static_cast<size_t>(tensor.bytes()));
  }
}

void GgufSource::release(const HostTensor& tensor) const {
  for (const GgufFile& part : files_) {
    part.image().drop(tensor.data, static_cast<size_t>(tensor.bytes()));
  }
}

void GgufSource::add_tensors(const GgufFile& part) {
  const std::span<const std::byte> data = part.data();
  std::vector<Extent> extents;
  for (const GgufTensorInfo& info : part.tensors()) {
    const auto type = ggml_type(info.type);
    if (!type) {
      fail(StatusCode::kDataLoss, "{}: tensor '{}' has unknown type {}; supported: {}", part.path(),
           info.name, info.type, kSupportedTypes);
    }
    Entry entry;
    entry.file = part.path();
    entry.tensor.name = info.name;
    entry.tensor.shape.assign(info.extents.rbegin(), info.extents.rend());
    if (info.offset > data.size()) {
      fail(StatusCode::kDataLoss, "{}: tensor '{}' has offset {}; the file holds {} bytes of data",
           part.path(), info.name, info.offset, data.size());
    }
    if (type->dtype) {
      entry.tensor.dtype = *type->dtype;
      const uint64_t bytes = tensor_bytes(part, info, *type->dtype);
      if (bytes > data.size() - info.offset) {
        fail(StatusCode::kDataLoss,
             "{}: tensor '{}' takes {} bytes from offset {}; the file holds {} bytes of data",
             part.path(), info.name, bytes, info.offset, data.size());
      }
      entry.tensor.data = data.data() + info.offset;
      extents.push_back({info.offset, info.offset + bytes, info.name});
    } else {
      entry.unsupported_type = fmt::format("{} (supported: {})", type->name, kSupportedTypes);
    }
    add(std::move(entry));
  }
  check_overlaps(extents, part.path());
}

}  // namespace zipage
