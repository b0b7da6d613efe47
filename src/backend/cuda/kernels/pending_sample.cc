// The sampler has no kernel yet: it says so when called.
#include "backend/cuda/kernels/sample.h"
#include "base/error.h"

namespace zipage {

size_t sample_kernel_workspace_bytes(const Backend::Limits&, const CudaContext&) { return 0; }

void launch_sample(const SampleArgs&, const CudaContext&, cudaStream_t) {
  fail(StatusCode::kUnimplemented, "op sample: no CUDA kernel yet");
}

}  // namespace zipage
