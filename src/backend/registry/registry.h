// create_backend(): the only place that names concrete backends. The CUDA backend is opened as a
// shared library here, so that nothing else depends on CUDA.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace zipage {

// `device`: auto | cpu | cuda. auto takes a GPU that works and falls back to the CPU. Throws
// kUnavailable with the reason when cuda is asked for and cannot be had, kInvalidArgument for
// another word. `why_no_gpu`: where auto falls back although the CUDA backend's library is there, it
// is given the reason (no GPU, one that is not supported, a library of CUDA that is missing).
std::unique_ptr<Backend> create_backend(const std::string& device,
                                        const BackendOptions& options,
                                        std::string* why_no_gpu = nullptr);

}  // namespace zipage
