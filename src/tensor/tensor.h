// A tensor in host memory as a file or the loader holds it: row-major, contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace zipage {

using Shape = std::vector<int64_t>;
std::string to_string(const Shape& shape);  // "[4, 1024]"
int64_t num_elements(const Shape& shape);

// Does not own its bytes.
struct HostTensor {
  std::string name;  // as in the file, for messages
  DType dtype = DType::kF32;
  Shape shape;  // packed types: in elements
  const std::byte* data = nullptr;

  int64_t bytes() const { return dtype_bytes(dtype, num_elements(shape)); }
};

// Element `index` (row-major) of a plain float type as f32.
float element_as_f32(const HostTensor& tensor, int64_t index);
// All elements of a plain float type as f32.
std::vector<float> to_f32(const HostTensor& tensor);

}  // namespace zipage
