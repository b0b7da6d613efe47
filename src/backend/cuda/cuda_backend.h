// The CUDA backend: one object a device. Ops dispatch to the launchers of kernels/. Used from one
// thread at a time, except allocate(), copy() and the ops of different streams, which may come from
// two.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace zipage {

class CudaLinear;  // cuda_linear.h

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const CudaContext& context() const { return context_; }
  CudaLinear& linear_kernels() { return *linear_; }  // for benches

  DeviceInfo info() const override;
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

  void embed(const EmbedArgs& args, Stream& stream) override;
  void rms_norm(const RmsNormArgs& args, Stream& stream) override;
  void linear(const LinearArgs& args, Stream& stream) override;
  void silu_mul(const SiluMulArgs& args, Stream& stream) override;
  void gather_rows(const GatherRowsArgs& args, Stream& stream) override;
  void attention_prepare(const AttentionPrepareArgs& args, Stream& stream) override;
  void paged_attention(const PagedAttentionArgs& args, Stream& stream) override;
  void attend(const AttentionPrepareArgs& prepare,
              const PagedAttentionArgs& attention,
              Stream& stream) override;
  void sample(const SampleArgs& args, Stream& stream) override;

  void attention_score(const AttentionScoreArgs& args, Stream& stream) override;
  void global_score(const GlobalScoreArgs& args, Stream& stream) override;
  void max_pool(const MaxPoolArgs& args, Stream& stream) override;
  void redundancy(const RedundancyArgs& args, Stream& stream) override;
  void center_redundancy(const CenterRedundancyArgs& args, Stream& stream) override;
  void normalized_history(const NormalizedHistoryArgs& args, Stream& stream) override;
  void combine(const CombineArgs& args, Stream& stream) override;
  void plain_score(const PlainScoreArgs& args, Stream& stream) override;
  void protect(const ProtectArgs& args, Stream& stream) override;
  void top_k(const TopKArgs& args, Stream& stream) override;
  void compact(const CompactArgs& args, Stream& stream) override;
  void peak_update(const PeakUpdateArgs& args, Stream& stream) override;

 private:
  CudaContext context_;
  DType dtype_;
  std::unique_ptr<CudaLinear> linear_;
};

}  // namespace zipage

// What backend/registry looks up. Throws Error: kUnavailable when there is no usable GPU.
extern "C" zipage::Backend* zipage_create_cuda_backend(const zipage::BackendOptions* options);
