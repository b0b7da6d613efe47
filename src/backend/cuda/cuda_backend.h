// The CUDA backend: one object a device. Ops dispatch to the launchers of kernels/. Used from one
// thread at a time, except allocate(), copy() and the ops of different streams, which may come from
// two.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

class CudaLinear;  // cuda_linear.h
class CudaStream;  // cuda_stream.h

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const CudaContext& context() const { return context_; }
  CudaLinear& linear_kernels() { return *linear_; }  // for benches

  DeviceInfo info() const override;
  DeviceTraits traits() const override;
  Status device_health() override;
  DType activation_dtype() const override { return dtype_; }
  Buffer allocate(size_t bytes, MemorySpace space) override;
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override;
  void fill_zero(void* to, size_t bytes, Stream& stream) override;
  std::unique_ptr<Stream> create_stream(bool low_priority) override;
  std::unique_ptr<Event> create_event() override;
  void synchronize(Stream& stream) override;
  void begin_capture(Stream& stream) override;
  std::unique_ptr<Graph> end_capture(Stream& stream) override;
  std::unique_ptr<LinearWeight> make_linear(std::span<const HostTensor> parts,
                                            std::span<const HostTensor> bias) override;

  size_t attention_workspace_bytes(const Limits& limits) const override;
  size_t sample_workspace_bytes(const Limits& limits) const override;
  size_t compression_workspace_bytes(const Limits& limits,
                                     const CompressionOptions& options) const override;

#define ZIPAGE_DECLARE_OP(name, Args) void name(const Args& args, Stream& stream) override;
  ZIPAGE_OPS(ZIPAGE_DECLARE_OP)
#undef ZIPAGE_DECLARE_OP
  void attend(const AttentionPrepareArgs& prepare,
              const PagedAttentionArgs& attention,
              Stream& stream) override;

 private:
  // Ops that need more of the backend than a launcher sees.
  void launch_embed(const EmbedArgs& args, const CudaContext& context, CudaStream& stream) const;
  void launch_linear(const LinearArgs& args, const CudaContext& context, CudaStream& stream);

  CudaContext context_;
  DType dtype_;
  std::unique_ptr<CudaLinear> linear_;
};

}  // namespace zipage

// What backend/registry looks up. Throws Error: kUnavailable when there is no usable GPU.
extern "C" zipage::Backend* zipage_create_cuda_backend(const zipage::BackendOptions* options);
