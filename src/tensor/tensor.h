// HostTensor: a view of a tensor in host memory as a file or the loader holds it. Row-major,
// contiguous, with its name for messages. Does not own its bytes and does no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace zipage {

using Shape = std::vector<int64_t>;
// "[4, 1024]"
std::string to_string(const Shape& shape);
int64_t num_elements(const Shape& shape);

// Does not own its bytes.
struct HostTensor {
  // As in the file, for messages.
  std::string name;
  DType dtype = DType::kF32;
  // Packed types: in elements.
  Shape shape;
  const std::byte* data = nullptr;

  int64_t bytes() const { return dtype_bytes(dtype, num_elements(shape)); }
};

// Element `index` (row-major) of a plain float type as f32.
float element_as_f32(const HostTensor& tensor, int64_t index);
// All elements of a plain float type as f32.
std::vector<float> to_f32(const HostTensor& tensor);

}  // namespace zipage
