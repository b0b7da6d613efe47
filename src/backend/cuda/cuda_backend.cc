#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/cuda_stream.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage {

namespace {

CudaContext open_device(int32_t index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    fail(StatusCode::kUnavailable, "device 'cuda': {}", cudaGetErrorString(status));
  }
  if (count == 0) fail(StatusCode::kUnavailable, "device 'cuda': no NVIDIA GPU is visible");
  if (index < 0 || index >= count) {
    fail_invalid("device_index {}: the GPUs visible here are 0..{}", index, count - 1);
  }
  ZIPAGE_CUDA_CHECK(cudaSetDevice(index));
  cudaDeviceProp properties{};
  ZIPAGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  // The kernels are tuned to the shared memory of these two and built for no other.
  const bool supported = properties.minor == 0 && (properties.major == 8 || properties.major == 9);
  if (!supported) {
    fail(StatusCode::kUnavailable,
         "device 'cuda': {} has compute capability {}.{}; supported are 8.0 (A100) and 9.0 (H100, "
         "H200)",
         properties.name, properties.major, properties.minor);
  }
  CudaContext context;
  context.device = index;
  context.num_sms = properties.multiProcessorCount;
  context.compute_capability = properties.major * 10 + properties.minor;
  context.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  context.max_shared_bytes = properties.sharedMemPerBlockOptin;
  if (context.is_hopper()) {
    cudaDriverEntryPointQueryResult found{};
    ZIPAGE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &context.encode_tensor_map, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
      fail(StatusCode::kUnavailable, "device 'cuda': the driver has no cuTensorMapEncodeTiled");
    }
  }
  return context;
}

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options)
    : context_(open_device(options.device_index)), dtype_(options.dtype) {
  if (dtype_ != DType::kF32 && dtype_ != DType::kBF16) {
    fail_invalid("dtype {} on a GPU: expected f32 or bf16", to_string(dtype_));
  }
  linear_ = std::make_unique<CudaLinear>(context_, dtype_);
}

CudaBackend::~CudaBackend() = default;

DeviceInfo CudaBackend::info() const {
  cudaDeviceProp properties{};
  ZIPAGE_CUDA_CHECK(cudaSetDevice(context_.device));
  ZIPAGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, context_.device));
  DeviceInfo info;
  info.name = properties.name;
  info.kind = "cuda";
  ZIPAGE_CUDA_CHECK(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

DeviceTraits CudaBackend::traits() const {
  return {.is_asynchronous = true,
          .supports_graphs = true,
          .has_own_memory = true,
          .default_step_tokens = 4096,
          .compression_batch_jobs = 8,
          .max_head_dim = 256,
          .head_dim_step = 4,
          .compression_head_dim_step = 16,
          .compression_rotary_dim_step = 16};
}

// An error that one call made is cleared first; one that stays in the CUDA context comes back from
// any call.
Status CudaBackend::device_health() {
  cudaGetLastError();
  cudaError_t status = cudaSetDevice(context_.device);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (status == cudaSuccess) status = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (status == cudaSuccess) status = cudaStreamQuery(nullptr);
  if (status == cudaSuccess || status == cudaErrorNotReady) return Status();
  return Status(StatusCode::kUnavailable,
                fmt::format("the GPU cannot be used any more: {} ({})", cudaGetErrorString(status),
                            cudaGetErrorName(status)));
}

Buffer CudaBackend::allocate(size_t bytes, MemorySpace space) {
  if (bytes == 0) return Buffer();
  ZIPAGE_CUDA_CHECK(cudaSetDevice(context_.device));
  void* data = nullptr;
  if (space == MemorySpace::kHost) {
    const cudaError_t status = cudaMallocHost(&data, bytes);
    if (status != cudaSuccess) {
      cudaGetLastError();
      fail(StatusCode::kResourceExhausted, "{} bytes of pinned host memory: {}", bytes,
           cudaGetErrorString(status));
    }
    return Buffer(data, bytes, [](void* p) { cudaFreeHost(p); });
  }
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(StatusCode::kResourceExhausted, "{} bytes of GPU memory wanted, {} of {} are free: {}",
         bytes, free_bytes, total_bytes, cudaGetErrorString(status));
  }
  return Buffer(data, bytes, [](void* p) { cudaFree(p); });
}

void CudaBackend::copy(void* to, const void* from, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  ZIPAGE_CUDA_CHECK(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(stream).handle()));
}

void CudaBackend::fill_zero(void* to, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  ZIPAGE_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, cuda_stream(stream).handle()));
}

std::unique_ptr<Stream> CudaBackend::create_stream(bool low_priority) {
  return std::make_unique<CudaStream>(context_.device, low_priority,
                                      low_priority ? 0 : CudaLinear::kWorkspaceBytes);
}

std::unique_ptr<Event> CudaBackend::create_event() {
  return std::make_unique<CudaEvent>(context_.device);
}

void CudaBackend::synchronize(Stream& stream) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(context_.device));
  ZIPAGE_CUDA_CHECK(cudaStreamSynchronize(cuda_stream(stream).handle()));
}

void CudaBackend::begin_capture(Stream& stream) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(context_.device));
  ZIPAGE_CUDA_CHECK(
      cudaStreamBeginCapture(cuda_stream(stream).handle(), cudaStreamCaptureModeThreadLocal));
}

std::unique_ptr<Graph> CudaBackend::end_capture(Stream& stream) {
  cudaGraph_t graph = nullptr;
  ZIPAGE_CUDA_CHECK(cudaStreamEndCapture(cuda_stream(stream).handle(), &graph));
  return std::make_unique<CudaGraph>(context_.device, graph);
}

std::unique_ptr<LinearWeight> CudaBackend::make_linear(std::span<const HostTensor> parts,
                                                       std::span<const HostTensor> bias) {
  return linear_->make_weight(parts, bias);
}

}  // namespace zipage

extern "C" zipage::Backend* zipage_create_cuda_backend(const zipage::BackendOptions* options) {
  return new zipage::CudaBackend(*options);
}
