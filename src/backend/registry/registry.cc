#include "backend/registry/registry.h"

#include <dlfcn.h>
#include <filesystem>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace zipage {

namespace {

constexpr const char* kCudaLibrary = "libzipage_cuda.so";
constexpr const char* kCudaSymbol = "zipage_create_cuda_backend";  // backend/cuda/cuda_backend.h

// Beside the program or library this code is part of, in its ../lib, then wherever the loader
// looks.
std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  const auto add_near = [&](const std::filesystem::path& file) {
    const std::filesystem::path folder = file.parent_path();
    for (const auto& near : {folder, folder.parent_path() / "lib"}) {
      const std::filesystem::path library = near / kCudaLibrary;
      std::error_code ignored;
      if (std::filesystem::exists(library, ignored)) paths.push_back(library.string());
    }
  };
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&create_backend), &here) != 0 &&
      here.dli_fname != nullptr) {
    std::error_code ignored;
    add_near(std::filesystem::absolute(here.dli_fname, ignored));
  }
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) add_near(program);
  paths.emplace_back(kCudaLibrary);
  return paths;
}

// The library stays open for the life of the process: the backend's code lies in it.
std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options) {
  std::string reason;
  for (const std::string& path : candidates()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason = dlerror();
      continue;
    }
    using Create = Backend* (*)(const BackendOptions*);
    const auto create = reinterpret_cast<Create>(dlsym(library, kCudaSymbol));
    if (create == nullptr) {
      fail(StatusCode::kUnavailable, "device 'cuda': {} has no {}", path, kCudaSymbol);
    }
    return std::unique_ptr<Backend>(create(&options));
  }
  fail(StatusCode::kUnavailable,
       "device 'cuda': {} cannot be opened ({}); build with -DZIPAGE_CUDA=ON, or use --device cpu",
       kCudaLibrary, reason);
}

}  // namespace

std::unique_ptr<Backend> create_backend(const std::string& device,
                                        const BackendOptions& options,
                                        std::string* why_no_gpu) {
  if (device == "cpu") return create_cpu_backend(options);
  if (device == "cuda") return create_cuda_backend(options);
  if (device == "auto") {
    try {
      return create_cuda_backend(options);
    } catch (const Error& error) {
      if (error.code() != StatusCode::kUnavailable) throw;
      // A build without the library is one for CPUs, which needs no explanation.
      const bool has_library = candidates().size() > 1;
      if (why_no_gpu != nullptr && has_library) *why_no_gpu = error.what();
    }
    return create_cpu_backend(options);
  }
  fail_invalid("device '{}': expected auto, cpu or cuda", device);
}

}  // namespace zipage
