#include "backend/cpu/runtime/memory.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/machine.h"

namespace zipage::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

[[noreturn]] void fail_memory(size_t bytes, size_t free_bytes) {
  if (bytes > free_bytes) {
    fail(StatusCode::kResourceExhausted,
         "cannot allocate {} bytes of memory: {} bytes are free; a smaller --kv-cache-memory, "
         "--max-num-batched-tokens or --max-num-seqs needs less",
         bytes, free_bytes);
  }
  fail(StatusCode::kResourceExhausted,
       "cannot allocate {} bytes of memory: the system refuses them although {} bytes are free; a "
       "limit of address space (ulimit -v) or strict overcommit does that",
       bytes, free_bytes);
}

Buffer allocate_pages(size_t bytes, size_t free_bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t length =
      round_up(bytes, page);  // the tail stays on small pages: no memory is lost to rounding
  const size_t reserved = length + kHugePage;  // so that an aligned piece lies inside
  void* mapped =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) fail_memory(bytes, free_bytes);
  std::byte* begin = static_cast<std::byte*>(mapped);
  const size_t head =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (head > 0) munmap(begin, head);
  begin += head;
  if (kHugePage - head > 0) munmap(begin + length, kHugePage - head);
  madvise(begin, length, MADV_HUGEPAGE);
  // Pages come with their first touch: tables sized for the worst case cost nothing until they are
  // used.
  return Buffer(begin, bytes, [length](void* data) { munmap(data, length); });
}

}  // namespace

Buffer allocate_memory(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes < kHugePage) {
    void* data = std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));
    if (data == nullptr) fail_memory(bytes, memory_state().free_bytes);
    return Buffer(data, bytes, [](void* p) { std::free(p); });
  }
  // Linux hands out more address space than there is memory and ends the process at the first
  // touch: ask first.
  const MemoryState state = memory_state();
  if (bytes > state.free_bytes) fail_memory(bytes, state.free_bytes);
  return allocate_pages(bytes, state.free_bytes);
}

}  // namespace zipage::cpu
