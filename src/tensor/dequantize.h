// The meaning of GGUF's packed types, element by element. Plain loops: the reference that every
// kernel over packed weights is tested against.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/tensor.h"

namespace zipage {

// All elements of a tensor as f32, row-major; out has num_elements(tensor.shape) places. Takes the
// packed types and the plain float types; throws kUnimplemented for others.
// One multiplication, or one and an addition, an element, each rounded to f32 (no fused
// operations).
void dequantize(const HostTensor& tensor, std::span<float> out);

}  // namespace zipage
