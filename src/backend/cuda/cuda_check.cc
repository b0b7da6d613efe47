#include "backend/cuda/cuda_check.h"

#include "base/error.h"

namespace zipage {

void cuda_call_failed(cudaError_t status, const char* call, const char* file, int line) {
  fail(status == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted : StatusCode::kInternal,
       "{}:{}: {}: {} ({})", file, line, call, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void kernel_lacks(const char* op, const char* what, int64_t value, const char* takes) {
  fail(StatusCode::kUnimplemented, "op {}: {} {}; the CUDA kernel takes {}", op, what, value,
       takes);
}

void kernel_lacks_dtype(const char* op, const char* what, DType dtype) {
  fail(StatusCode::kUnimplemented, "op {}: no CUDA kernel for {} of {}", op, what,
       to_string(dtype));
}

}  // namespace zipage
