// The CPU backend.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace zipage {

std::unique_ptr<Backend> create_cpu_backend(const BackendOptions& options);

}  // namespace zipage
