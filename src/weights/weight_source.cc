#include "weights/weight_source.h"

#include <cstring>

#include "base/error.h"
#include "base/mmap.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace zipage {
namespace {

size_t required_alignment(DType dtype) {
  return is_packed(dtype) ? 2 : static_cast<size_t>(packed_block_bytes(dtype));
}

}  // namespace

void WeightSource::add(Entry entry) {
  HostTensor& tensor = entry.tensor;
  if (const Entry* other = this->entry(tensor.name)) {
    fail(StatusCode::kDataLoss, "{}: tensor '{}' is also in {}", entry.file, tensor.name,
         other->file);
  }
  if (entry.unsupported_type.empty()) {
    const auto bytes = static_cast<size_t>(tensor.bytes());
    total_bytes_ += tensor.bytes();
    // Real files align their tensors; this keeps the promise for the others.
    if (reinterpret_cast<uintptr_t>(tensor.data) % required_alignment(tensor.dtype) != 0) {
      auto copy = std::make_unique<std::byte[]>(bytes);
      fetch(tensor);
      std::memcpy(copy.get(), tensor.data, bytes);
      release(tensor);
      tensor.data = copy.get();
      aligned_copies_.push_back(std::move(copy));
    }
  }
  std::string name = tensor.name;
  entries_.emplace(std::move(name), std::move(entry));
}

const WeightSource::Entry* WeightSource::entry(std::string_view name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

const HostTensor* WeightSource::find(std::string_view name) const {
  const HostTensor* tensor = peek(name);
  if (tensor != nullptr) fetch(*tensor);
  return tensor;
}

const HostTensor& WeightSource::get(std::string_view name, const Shape& expected_shape) const {
  const HostTensor& tensor = require(name, expected_shape);
  fetch(tensor);
  return tensor;
}

const HostTensor* WeightSource::peek(std::string_view name) const {
  const Entry* found = entry(name);
  if (found == nullptr) return nullptr;
  if (!found->unsupported_type.empty()) {
    fail(StatusCode::kUnimplemented, "{}: tensor '{}' has type {}, which is not supported",
         found->file, name, found->unsupported_type);
  }
  return &found->tensor;
}

const HostTensor& WeightSource::require(std::string_view name, const Shape& expected_shape) const {
  const HostTensor* tensor = peek(name);
  if (tensor == nullptr) {
    const auto why = absent_.find(name);
    fail(StatusCode::kNotFound, "{}: tensor '{}' of shape {} is missing{}", path_, name,
         to_string(expected_shape), why == absent_.end() ? "" : ": " + why->second);
  }
  if (tensor->shape != expected_shape) {
    fail(StatusCode::kDataLoss, "{}: tensor '{}' has shape {}; the config asks for {}",
         entry(name)->file, name, to_string(tensor->shape), to_string(expected_shape));
  }
  return *tensor;
}

std::vector<std::string> WeightSource::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, unused] : entries_) names.push_back(name);
  return names;
}

std::unique_ptr<WeightSource> open_weights(const std::string& path, std::string_view load_format) {
  if (load_format != "auto" && load_format != "safetensors" && load_format != "gguf") {
    fail_invalid("load_format is '{}'; expected auto, safetensors, gguf or dummy", load_format);
  }
  const bool folder = is_directory(path);
  if (!folder && !is_regular_file(path)) {
    fail(StatusCode::kNotFound, "'{}' is neither a model folder nor a file", path);
  }
  if (load_format == "safetensors" || (load_format == "auto" && folder)) {
    return SafetensorsSource::open(path);
  }
  return GgufSource::open(path);
}

}  // namespace zipage
