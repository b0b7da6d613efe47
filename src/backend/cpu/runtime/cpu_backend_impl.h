// The concrete backend: owns the pool, dispatches each op to its free function (ops.h), at once or
// through a queue.
#pragma once

#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/runtime/context.h"
#include "backend/cpu/runtime/stream.h"

namespace zipage::cpu {

// Driven by one thread. Streams and weights must not outlive it.
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options);

  DeviceInfo info() const override;
  DeviceTraits traits() const override;
  DType activation_dtype() const override { return DType::kF32; }

  Buffer allocate(size_t bytes, MemorySpace space) override;
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override;
  void fill_zero(void* to, size_t bytes, Stream& stream) override;

  std::unique_ptr<Stream> create_stream(bool low_priority) override;
  // For tests: its work runs when run_next() says so.
  std::unique_ptr<QueuedStream> create_manual_stream();
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

  const CpuContext& context() const { return context_; }  // without scratch: that is a stream's

 private:
  CpuFeatures features_;
  ThreadPool pool_;
  CpuContext context_;
};

}  // namespace zipage::cpu
