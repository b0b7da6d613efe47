// Streams, events and graphs of a CUDA device. Owned by whoever created them; used from one thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/backend.h"

namespace zipage {

class CudaStream final : public Stream {
 public:
  // `workspace_bytes` of device memory belong to the stream: split GEMMs of linear() on it.
  CudaStream(int device, bool low_priority, size_t workspace_bytes);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t handle() const { return handle_; }
  // Launchers of kernels take the handle.
  operator cudaStream_t() const { return handle_; }
  void* workspace() const { return workspace_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  // kNumCounters that are 0 between kernels: how a kernel's blocks find out which of them is last.
  uint32_t* counters() const { return counters_; }
  static constexpr int32_t kNumCounters = 1024;

 private:
  void release();  // memory

  int device_;
  cudaStream_t handle_ = nullptr;
  uint32_t* counters_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(Stream& stream) override;
  bool query() override;
  void wait() override;
  void block(Stream& stream) override;
  double seconds_since(Event& earlier) const override;

 private:
  int device_;
  cudaEvent_t handle_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  // Takes the captured graph, makes it launchable and frees it.
  CudaGraph(int device, cudaGraph_t graph);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(Stream& stream) override;

 private:
  int device_;
  cudaGraphExec_t handle_ = nullptr;
};

inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace zipage
