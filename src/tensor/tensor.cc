#include "tensor/tensor.h"

#include <cstring>

#include "base/error.h"

namespace zipage {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

float element_as_f32(const HostTensor& tensor, int64_t index) {
  const std::byte* at = tensor.data + index * packed_block_bytes(tensor.dtype);
  uint16_t half;
  float value;
  switch (tensor.dtype) {
    case DType::kF32:
      std::memcpy(&value, at, sizeof value);
      return value;
    case DType::kBF16:
      std::memcpy(&half, at, sizeof half);
      return bf16_to_f32(half);
    case DType::kF16:
      std::memcpy(&half, at, sizeof half);
      return f16_to_f32(half);
    default:
      fail(StatusCode::kUnimplemented, "tensor '{}': type {} is not a plain float type",
           tensor.name, to_string(tensor.dtype));
  }
}

std::vector<float> to_f32(const HostTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = element_as_f32(tensor, static_cast<int64_t>(i));
  return values;
}

}  // namespace zipage
