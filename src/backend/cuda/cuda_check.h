// Every CUDA call is checked. Out of memory is kResourceExhausted, the rest kInternal. No fmt here:
// nvcc cannot digest its headers, so .cu files report through the functions below.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "tensor/dtype.h"

namespace zipage {

[[noreturn]] void cuda_call_failed(cudaError_t status,
                                   const char* call,
                                   const char* file,
                                   int line);
// kUnimplemented: "op OP: WHAT VALUE; the CUDA kernel takes TAKES".
[[noreturn]] void kernel_lacks(const char* op, const char* what, int64_t value, const char* takes);
[[noreturn]] void kernel_lacks_dtype(const char* op, const char* what, DType dtype);

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) cuda_call_failed(status, call, file, line);
}

}  // namespace zipage

#define ZIPAGE_CUDA_CHECK(call) ::zipage::check_cuda((call), #call, __FILE__, __LINE__)
// After a <<<>>> launch: reports a launch that could not be made; clears the error state.
#define ZIPAGE_CUDA_CHECK_LAUNCH(kernel) \
  ::zipage::check_cuda(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)
