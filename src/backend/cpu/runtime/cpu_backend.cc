#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/cpu_backend_impl.h"
#include "base/check.h"
#include "base/error.h"
#include "base/machine.h"

namespace zipage {

std::unique_ptr<Backend> create_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

namespace cpu {
namespace {

int choose_num_threads(int32_t requested) {
  constexpr int kMostThreads = 1024;
  if (requested < 0 || requested > kMostThreads) {
    fail_invalid("num_threads {}: expected 0 (all CPUs that the process may use) to {}", requested,
                 kMostThreads);
  }
  return requested > 0 ? requested : std::min(usable_cpus(), kMostThreads);
}

CpuStream& as_cpu(Stream& stream) {
  auto* cpu_stream = dynamic_cast<CpuStream*>(&stream);
  ZIPAGE_CHECK(cpu_stream != nullptr);
  return *cpu_stream;
}

// A queued call must not depend on host structs that the caller reuses: the batch and the view of
// the cache are copied with the arguments. The arrays that they point to are device memory and
// follow the stream's order.
template <typename Args>
struct QueuedCall {
  explicit QueuedCall(const Args& caller_args) : args(caller_args) {}
  const Args& bound() { return args; }
  Args args;
};

template <typename Args>
requires requires(Args a) { a.batch; }
struct QueuedCall<Args> {
  explicit QueuedCall(const Args& caller_args)
      : args(caller_args), batch(*args.batch), kv(*args.kv) {}
  const Args& bound() {
    args.batch = &batch;
    args.kv = &kv;
    return args;
  }
  Args args;
  std::remove_cvref_t<decltype(*Args::batch)> batch;
  PagedKvView kv;
};

template <typename Args>
void dispatch(void (*op)(const Args&, CpuContext&), const Args& args, Stream& stream) {
  CpuStream& target = as_cpu(stream);
  if (CpuContext* context = target.immediate()) {
    op(args, *context);
    return;
  }
  target.push(Task([op, call = QueuedCall<Args>(args)](CpuContext& context) mutable {
    op(call.bound(), context);
  }));
}

}  // namespace

CpuBackend::CpuBackend(const BackendOptions& options)
    : features_(detect_cpu_features()), pool_(choose_num_threads(options.num_threads)) {
  if (options.dtype != DType::kF32 && options.dtype != DType::kBF16) {
    fail_invalid("dtype {} on a CPU: expected f32 or bf16", to_string(options.dtype));
  }
  context_.pool = &pool_;
  context_.isa = choose_isa(options.isa, features_);
  context_.features = features_;
  context_.dtype = options.dtype;
}

DeviceInfo CpuBackend::info() const {
  const MemoryState memory = memory_state();
  DeviceInfo info;
  info.name = fmt::format("{}, {}, {} thread{}", cpu_model_name(), isa_name(context_.isa),
                          pool_.num_threads(), pool_.num_threads() == 1 ? "" : "s");
  info.kind = "cpu";
  info.total_bytes = memory.total_bytes;
  info.free_bytes = memory.free_bytes;
  return info;
}

DeviceTraits CpuBackend::traits() const {
  DeviceTraits traits;
  traits.default_kv_cache_share = 0.25;
  return traits;
}

Buffer CpuBackend::allocate(size_t bytes, MemorySpace) { return allocate_memory(bytes); }

void CpuBackend::copy(void* to, const void* from, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  CpuStream& target = as_cpu(stream);
  if (target.immediate() != nullptr) {
    std::memcpy(to, from, bytes);
  } else {
    target.push(Task([=](CpuContext&) { std::memcpy(to, from, bytes); }));
  }
}

void CpuBackend::fill_zero(void* to, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  CpuStream& target = as_cpu(stream);
  if (target.immediate() != nullptr) {
    std::memset(to, 0, bytes);
  } else {
    target.push(Task([=](CpuContext&) { std::memset(to, 0, bytes); }));
  }
}

std::unique_ptr<Stream> CpuBackend::create_stream(bool low_priority) {
  if (low_priority) return std::make_unique<QueuedStream>(context_, Drive::kPool);
  return std::make_unique<MainStream>(context_);
}

std::unique_ptr<QueuedStream> CpuBackend::create_manual_stream() {
  return std::make_unique<QueuedStream>(context_, Drive::kManual);
}

std::unique_ptr<Event> CpuBackend::create_event() { return std::make_unique<CpuEvent>(); }

void CpuBackend::synchronize(Stream& stream) { as_cpu(stream).synchronize(); }

void CpuBackend::begin_capture(Stream&) {
  fail(StatusCode::kUnimplemented, "graphs on a CPU: ops run at once there");
}

std::unique_ptr<Graph> CpuBackend::end_capture(Stream&) {
  fail(StatusCode::kUnimplemented, "graphs on a CPU: ops run at once there");
}

std::unique_ptr<LinearWeight> CpuBackend::make_linear(std::span<const HostTensor> parts,
                                                      std::span<const HostTensor> bias) {
  return pack_linear(parts, bias, context_);
}

size_t CpuBackend::attention_workspace_bytes(const Limits& limits) const {
  return cpu::attention_workspace_bytes(limits, context_);
}
size_t CpuBackend::sample_workspace_bytes(const Limits& limits) const {
  return cpu::sample_workspace_bytes(limits, context_);
}
size_t CpuBackend::compression_workspace_bytes(const Limits& limits,
                                               const CompressionOptions& options) const {
  return cpu::compression_workspace_bytes(limits, options, context_);
}

#define ZIPAGE_DISPATCH_OP(name, Args) \
  void CpuBackend::name(const Args& args, Stream& stream) { dispatch(cpu::name, args, stream); }
ZIPAGE_OPS(ZIPAGE_DISPATCH_OP)
#undef ZIPAGE_DISPATCH_OP

}  // namespace cpu
}  // namespace zipage
