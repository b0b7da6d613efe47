// Stores of a few neighbouring values in the type of their destination.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/common/types.cuh"

namespace zipage {

// Stores N values in T by one access.
template <typename T, int N>
__device__ inline void store_pack(T* to, const float (&value)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack.value[j] = from_float<T>(value[j]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
// The same in a type known at run time: element `place` of `to`.
template <int N>
__device__ inline void store_pack(std::byte* to,
                                  DType dtype,
                                  int64_t place,
                                  const float (&value)[N]) {
  if (dtype == DType::kF32) {
    store_pack(reinterpret_cast<float*>(to) + place, value);
  } else if (dtype == DType::kBF16) {
    store_pack(reinterpret_cast<bf16*>(to) + place, value);
  } else {
    store_pack(reinterpret_cast<__half*>(to) + place, value);
  }
}

}  // namespace zipage
