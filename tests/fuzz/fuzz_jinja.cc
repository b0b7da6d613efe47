// A template of any content renders or throws Error, within its limits: of work, and so of time, and
// of memory.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sanitizer/allocator_interface.h>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/utf8.h"

namespace {

// Under sanitizers, for 20,000 steps and 4 MiB.
constexpr double kMaxSeconds = 4.0;
constexpr int64_t kMaxLiveBytes = int64_t{96} << 20;

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> most_live_bytes{0};

void on_malloc(const volatile void*, size_t bytes) {
  const int64_t live =
      live_bytes.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
  if (live > most_live_bytes.load()) most_live_bytes.store(live);
}

void on_free(const volatile void* pointer) {
  if (pointer == nullptr) return;
  live_bytes.fetch_sub(
      static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer))));
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

[[noreturn]] void give_up(const char* what, double value) {
  std::fprintf(stderr, "the template escaped its budget: %s %g\n", what, value);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0) std::abort();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using zipage::jinja::Value;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!zipage::is_valid_utf8(input)) return 0;
  zipage::jinja::DictBuilder message;
  message.set("role", Value::string("user"));
  message.set("content", Value::string("hello \xC3\xA9"));
  zipage::jinja::DictBuilder variables;
  variables.set("messages", Value::list({message.finish()}));
  variables.set("add_generation_prompt", Value::boolean(true));
  zipage::jinja::Limits limits;
  limits.max_steps = 20'000;
  limits.max_bytes = 4 << 20;
  const int64_t live_before = live_bytes.load();
  most_live_bytes.store(live_before);
  const double start = cpu_seconds();
  try {
    zipage::jinja::Template(input).render(variables.finish(), 1'700'000'000, limits);
  } catch (const zipage::Error&) {
  }
  if (cpu_seconds() - start > kMaxSeconds) give_up("seconds", cpu_seconds() - start);
  const int64_t most = most_live_bytes.load() - live_before;
  if (most > kMaxLiveBytes) give_up("bytes", static_cast<double>(most));
  return 0;
}
