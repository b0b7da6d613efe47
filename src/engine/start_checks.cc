#include "engine/start_checks.h"

#include <cstdint>
#include <fmt/format.h>
#include <limits>

#include "base/error.h"

namespace zipage {
namespace {

std::string size_text(size_t bytes) {
  const auto b = static_cast<double>(bytes);
  return b >= 0x1p29 ? fmt::format("{:.2f} GiB", b / 0x1p30)
                     : fmt::format("{:.1f} MiB", b / 0x1p20);
}

void check_range(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail_invalid("{}: {} is not in [{}, {}]", flag, value, low, high);
}

}  // namespace

void check_options(const EngineOptions& o) {
  // More than 8192 is beyond the plain attention kernel of a GPU.
  check_range("--block-size", o.block_size, 1, 1 << 13);
  check_range("--max-num-seqs", o.max_num_seqs, 1, 1 << 16);
  check_range("--max-num-batched-tokens", o.max_num_batched_tokens, 0, 1 << 20);
  check_range("--max-queued-requests", o.max_queued_requests, 0, int64_t{1} << 30);
  check_range("--max-model-len", o.max_model_len, 0, int64_t{1} << 24);
  check_range("--threads", o.num_threads, 0, 4096);
  // Positions in the cache are 32-bit numbers.
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  check_range("--num-gpu-blocks-override", o.num_gpu_blocks_override, 0,
              kMostTokens / o.block_size);
  check_range("--kv-cache-memory", o.kv_cache_memory_bytes, 0, int64_t{1} << 50);
  check_range("--swap-space", o.swap_space_bytes, 0, int64_t{1} << 50);
  if (o.tensor_parallel_size != 1) {
    fail(StatusCode::kUnimplemented, "--tensor-parallel-size: {}: only 1 is supported",
         o.tensor_parallel_size);
  }
  if (!(o.gpu_memory_utilization > 0 && o.gpu_memory_utilization <= 1)) {
    fail_invalid("--gpu-memory-utilization: {} is not in (0, 1]", o.gpu_memory_utilization);
  }
}

void check_heads(const ModelConfig& config,
                 const Backend& backend,
                 bool capped,
                 const std::string& model) {
  const DeviceTraits traits = backend.traits();
  const auto refuse = [&](const char* field, int32_t value, const std::string& right) {
    fail(StatusCode::kUnimplemented, "{}: {} {}: on {} it must be {}", model, field, value,
         backend.info().kind, right);
  };
  const auto check_step = [&](const char* field, int32_t value, int32_t step) {
    if (value % step == 0) return;
    refuse(
        field, value,
        fmt::format("a multiple of {} for a capped KV cache (--kv-budget full has no such limit)",
                    step));
  };
  if (config.head_dim > traits.max_head_dim || config.head_dim % traits.head_dim_step != 0) {
    refuse("head_dim", config.head_dim,
           fmt::format("a multiple of {}, at most {}", traits.head_dim_step, traits.max_head_dim));
  }
  if (!capped) return;
  check_step("head_dim", config.head_dim, traits.compression_head_dim_step);
  check_step("rotary dimension", config.rope.rotary_dim, traits.compression_rotary_dim_step);
}

void check_memory(std::span<const MemoryPart> parts, size_t available, const std::string& limit) {
  size_t needed = 0;
  std::string list;
  for (const MemoryPart& part : parts) {
    if (part.bytes == 0) continue;
    needed += part.bytes;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", part.name, size_text(part.bytes));
  }
  if (needed <= available) return;
  fail(StatusCode::kResourceExhausted, "memory: {} are needed ({}), {} are there: {}",
       size_text(needed), list, size_text(available), limit);
}

}  // namespace zipage
