// Backend: the narrow interface between the engine and a device. One object per device; every op
// takes its stream as an argument.
//
// An op only enqueues. It is done when its stream, or an event recorded after it, says so (a CPU's
// main stream runs each op at once). Bad arguments, and memory that is missing at the start, throw
// Error; an op that fails later surfaces at synchronize() or query().
//
// Thread: the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "zipage/status.h"

#include "backend/ops/op_list.h"
#include "tensor/tensor.h"

namespace zipage {

enum class MemorySpace {
  kDevice,
  // Pinned where the device can tell the difference.
  kHost,
};

// Move-only owner of a piece of memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr && release_) release_(data_);
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::function<void(void*)> release_;
};

class Stream {
 public:
  virtual ~Stream() = default;
};

// Marks a place in a stream.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  // True when reached; rethrows a failure of the work before it.
  virtual bool query() = 0;
  // Blocks the host.
  virtual void wait() = 0;
  // Later work of `stream` waits for it.
  virtual void block(Stream& stream) = 0;
  // Device time between two events that were reached, `earlier` first; 0 where ops run at once and
  // the host can time them.
  virtual double seconds_since(Event& earlier) const {
    static_cast<void>(earlier);
    return 0;
  }
};

// A captured sequence of ops.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) = 0;
};

// A weight matrix [out_features, in_features] in the backend's own layout.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  virtual int64_t out_features() const = 0;
  virtual int64_t in_features() const = 0;
  virtual size_t bytes() const = 0;
};

struct DeviceInfo {
  // "AMD EPYC, avx2, 2 threads", "NVIDIA H200"
  std::string name;
  // "cpu" | "cuda"
  std::string kind;
  // Memory
  size_t total_bytes = 0;
  size_t free_bytes = 0;
};

// Where devices differ in what is good for an engine, as data: no room compares names of devices.
struct DeviceTraits {
  // Ops run behind the host. A step is launched before the samples of the step before it are read,
  // and events measure device time.
  bool is_asynchronous = false;
  // begin_capture() works.
  bool supports_graphs = false;
  // Its memory is not the host's: what an engine allocates is planned against DeviceInfo's bytes, and
  // a cache size that the user names does not include scratch.
  bool has_own_memory = false;
  // Tokens of a step where the user names none.
  int32_t default_step_tokens = 512;
  // Jobs that a compression scores at one time. Scratch grows with it.
  int32_t compression_batch_jobs = 1;
  // Share of the free memory that the KV cache takes where the user names no size. Without meaning
  // with has_own_memory, where gpu_memory_utilization decides.
  double default_kv_cache_share = 0;
  // Heads that the kernels can do: the largest dimension, and what it is a multiple of for attention,
  // for compression, and the rotated part of it for compression.
  int32_t max_head_dim = 1024;
  int32_t head_dim_step = 1;
  int32_t compression_head_dim_step = 1;
  int32_t compression_rotary_dim_step = 1;
};

struct BackendOptions {
  int32_t device_index = 0;
  // CPU; 0: usable_cpus() of base/machine.h.
  int32_t num_threads = 0;
  // CPU: scalar | avx2 | avx512 | amx; empty: the best.
  std::string isa;
  // Arithmetic of the layers: kF32, or kBF16 (a CPU may then round the inputs of products).
  DType dtype = DType::kF32;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceInfo info() const = 0;
  // Constant while the backend lives.
  virtual DeviceTraits traits() const = 0;
  // After a failure: whether the device can still work. Not ok: every later call fails too, as
  // after a memory fault of a kernel or when a GPU falls off the bus. Does not wait for queued
  // work.
  virtual Status device_health() { return Status(); }
  // f32 on a CPU; options.dtype on a GPU.
  virtual DType activation_dtype() const = 0;

  // Memory. allocate() throws kResourceExhausted with the sizes.
  virtual Buffer allocate(size_t bytes, MemorySpace space) = 0;
  // Any spaces.
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void fill_zero(void* to, size_t bytes, Stream& stream) = 0;

  virtual std::unique_ptr<Stream> create_stream(bool low_priority) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  // Rethrows failures.
  virtual void synchronize(Stream& stream) = 0;
  // Ops between begin_capture and end_capture are recorded, not run. Only where traits() says so.
  virtual void begin_capture(Stream& stream) = 0;
  virtual std::unique_ptr<Graph> end_capture(Stream& stream) = 0;

  // Weights: the parts are stacked along the output (q, k, v; gate, up). `bias` may be empty, or
  // one a part.
  virtual std::unique_ptr<LinearWeight> make_linear(std::span<const HostTensor> parts,
                                                    std::span<const HostTensor> bias) = 0;

  // Largest workspaces for the given limits, in bytes.
  struct Limits {
    // Tokens per step.
    int32_t max_tokens;
    int32_t max_rows;
    // Entries
    int32_t max_kv_len;
    int32_t num_q_heads, num_kv_heads, head_dim, block_size, window_size;
    int32_t vocab;
    // Compression
    int32_t max_jobs, layer_stride, score_capacity;
  };
  virtual size_t attention_workspace_bytes(const Limits& limits) const = 0;
  virtual size_t sample_workspace_bytes(const Limits& limits) const = 0;
  virtual size_t compression_workspace_bytes(const Limits& limits,
                                             const CompressionOptions& options) const = 0;

#define ZIPAGE_DECLARE_OP(name, Args) virtual void name(const Args& args, Stream& stream) = 0;
  ZIPAGE_OPS(ZIPAGE_DECLARE_OP)
#undef ZIPAGE_DECLARE_OP

  // attention_prepare(), then paged_attention() of the same batch, pages and layer, its q being
  // q_out. A backend may do both in one kernel; q_out is scratch.
  virtual void attend(const AttentionPrepareArgs& prepare,
                      const PagedAttentionArgs& attention,
                      Stream& stream) {
    attention_prepare(prepare, stream);
    paged_attention(attention, stream);
  }
};

}  // namespace zipage
