#include "backend/cuda/cuda_stream.h"

#include "backend/cuda/cuda_check.h"

namespace zipage {

namespace {

void* allocate_zeroed(size_t bytes) {
  void* data = nullptr;
  ZIPAGE_CUDA_CHECK(cudaMalloc(&data, bytes));
  cudaError_t zeroed = cudaMemset(data, 0, bytes);
  if (zeroed == cudaSuccess) zeroed = cudaStreamSynchronize(nullptr);  // no other stream waits
  if (zeroed != cudaSuccess) cudaFree(data);
  ZIPAGE_CUDA_CHECK(zeroed);
  return data;
}

}  // namespace

CudaStream::CudaStream(int device, bool low_priority, size_t workspace_bytes) : device_(device) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device));
  int least = 0;
  int greatest = 0;
  ZIPAGE_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  try {
    counters_ = static_cast<uint32_t*>(allocate_zeroed(kNumCounters * sizeof(uint32_t)));
    if (workspace_bytes > 0) workspace_ = allocate_zeroed(workspace_bytes);
    workspace_bytes_ = workspace_bytes;
    ZIPAGE_CUDA_CHECK(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                                   low_priority ? least : greatest));
  } catch (...) {
    release();
    throw;
  }
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(handle_);
  cudaStreamDestroy(handle_);
  release();
}

void CudaStream::release() {
  cudaFree(counters_);
  cudaFree(workspace_);
}

CudaEvent::CudaEvent(int device) : device_(device) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device));
  ZIPAGE_CUDA_CHECK(cudaEventCreate(&handle_));
}

CudaEvent::~CudaEvent() { cudaEventDestroy(handle_); }

void CudaEvent::record(Stream& stream) {
  ZIPAGE_CUDA_CHECK(cudaEventRecord(handle_, cuda_stream(stream).handle()));
}

bool CudaEvent::query() {
  const cudaError_t status = cudaEventQuery(handle_);
  if (status == cudaErrorNotReady) return false;
  ZIPAGE_CUDA_CHECK(status);
  return true;
}

void CudaEvent::wait() { ZIPAGE_CUDA_CHECK(cudaEventSynchronize(handle_)); }

void CudaEvent::block(Stream& stream) {
  ZIPAGE_CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(stream).handle(), handle_, 0));
}

double CudaEvent::seconds_since(Event& earlier) const {
  float milliseconds = 0;
  ZIPAGE_CUDA_CHECK(
      cudaEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(earlier).handle_, handle_));
  return 1e-3 * static_cast<double>(milliseconds);
}

CudaGraph::CudaGraph(int device, cudaGraph_t graph) : device_(device) {
  const cudaError_t status = cudaGraphInstantiate(&handle_, graph, 0);
  cudaGraphDestroy(graph);
  ZIPAGE_CUDA_CHECK(status);
}

CudaGraph::~CudaGraph() { cudaGraphExecDestroy(handle_); }

void CudaGraph::launch(Stream& stream) {
  ZIPAGE_CUDA_CHECK(cudaSetDevice(device_));
  ZIPAGE_CUDA_CHECK(cudaGraphLaunch(handle_, cuda_stream(stream).handle()));
}

}  // namespace zipage
