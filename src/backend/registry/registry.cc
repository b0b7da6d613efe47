#include "backend/registry/registry.h"

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace zipage {

std::unique_ptr<Backend> create_backend(const std::string& device, const BackendOptions& options) {
  if (device == "cpu" || device == "auto") return create_cpu_backend(options);
  if (device == "cuda") fail(StatusCode::kUnavailable, "device 'cuda': libzipage_cuda.so is not built");
  fail_invalid("device '{}': expected auto, cpu or cuda", device);
}

}  // namespace zipage
