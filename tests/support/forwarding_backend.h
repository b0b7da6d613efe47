// A backend that hands every call to another one. A test derives from it and overrides what it wants
// to watch or to disturb.
//
//   class Counting final : public ForwardingBackend {
//    public:
//     using ForwardingBackend::ForwardingBackend;
//     int num_ops = 0;
//    protected:
//     void before_op(const char*) override { ++num_ops; }
//   };
//
// Thread: that of the backend behind it.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace zipage::testing {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  Backend& inner() const { return *inner_; }

  DeviceInfo info() const override { return inner_->info(); }
  DeviceTraits traits() const override { return inner_->traits(); }
  Status device_health() override { return inner_->device_health(); }
  DType activation_dtype() const override { return inner_->activation_dtype(); }
  Buffer allocate(size_t bytes, MemorySpace space) override {
    return inner_->allocate(bytes, space);
  }
  void copy(void* to, const void* from, size_t bytes, Stream& s) override {
    inner_->copy(to, from, bytes, s);
  }
  void fill_zero(void* to, size_t bytes, Stream& s) override { inner_->fill_zero(to, bytes, s); }
  std::unique_ptr<Stream> create_stream(bool low_priority) override {
    return inner_->create_stream(low_priority);
  }
  std::unique_ptr<Event> create_event() override { return inner_->create_event(); }
  void synchronize(Stream& stream) override { inner_->synchronize(stream); }
  void begin_capture(Stream& stream) override { inner_->begin_capture(stream); }
  std::unique_ptr<Graph> end_capture(Stream& stream) override {
    return inner_->end_capture(stream);
  }
  std::unique_ptr<LinearWeight> make_linear(std::span<const HostTensor> parts,
                                            std::span<const HostTensor> bias) override {
    return inner_->make_linear(parts, bias);
  }
  size_t attention_workspace_bytes(const Limits& limits) const override {
    return inner_->attention_workspace_bytes(limits);
  }
  size_t sample_workspace_bytes(const Limits& limits) const override {
    return inner_->sample_workspace_bytes(limits);
  }
  size_t compression_workspace_bytes(const Limits& limits,
                                     const CompressionOptions& options) const override {
    return inner_->compression_workspace_bytes(limits, options);
  }

  // attend() stays its two ops, so that both are seen.
#define ZIPAGE_FORWARD_OP(name, Args)                    \
  void name(const Args& args, Stream& stream) override { \
    before_op(#name);                                    \
    inner_->name(args, stream);                          \
  }
  ZIPAGE_OPS(ZIPAGE_FORWARD_OP)
#undef ZIPAGE_FORWARD_OP

 protected:
  // Called with the name of each op of the list before it is handed on; may throw.
  virtual void before_op(const char* name) { static_cast<void>(name); }

 private:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace zipage::testing
