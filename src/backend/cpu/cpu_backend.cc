#include "backend/cpu/cpu_backend.h"

#include "base/error.h"

namespace zipage {

std::unique_ptr<Backend> create_cpu_backend(const BackendOptions&) {
  fail(StatusCode::kUnimplemented, "the CPU backend is not there yet");
}

}  // namespace zipage
