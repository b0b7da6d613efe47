#include "machine_peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zipage {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t read_plain(const std::byte* from, int64_t bytes) {
  int64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    int64_t value;
    std::memcpy(&value, from + i, 8);
    sum += value;
  }
  return sum;
}

float multiply_add_plain(int64_t rounds) {
  float sum[32];
  for (int j = 0; j < 32; ++j) sum[j] = static_cast<float>(j);
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& s : sum) s = s * 0.999f + 1.0f;
  }
  float total = 0;
  for (const float s : sum) total += s;
  return total;
}
constexpr int64_t kPlainFlops = 32 * 2;

#if defined(__x86_64__)

// Four streams: the fetchers of a core follow several at once, and one alone does not fill the
// memory's pipeline.
__attribute__((target("avx2"))) int64_t read_avx2(const std::byte* from, int64_t bytes) {
  __m256i sum[8] = {};
  const int64_t quarter = bytes / 4;
  for (int64_t i = 0; i < quarter; i += 64) {
    for (int j = 0; j < 4; ++j) {
      const std::byte* line = from + j * quarter + i;
      _mm_prefetch(reinterpret_cast<const char*>(line + 1024), _MM_HINT_T0);
      for (int h = 0; h < 2; ++h) {
        sum[2 * j + h] = _mm256_xor_si256(
            sum[2 * j + h], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + h));
      }
    }
  }
  __m256i all = sum[0];
  for (int j = 1; j < 8; ++j) all = _mm256_xor_si256(all, sum[j]);
  return _mm256_extract_epi64(all, 0);
}

__attribute__((target("avx2,fma"))) float multiply_add_avx2(int64_t rounds) {
  __m256 sum[12];
  for (int j = 0; j < 12; ++j)
    sum[j] = _mm256_set1_ps(static_cast<float>(j));  // alike, they would be one chain
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = _mm256_fmadd_ps(s, a, b);
  }
  __m256 total = sum[0];
  for (int j = 1; j < 12; ++j) total = _mm256_add_ps(total, sum[j]);
  return _mm256_cvtss_f32(total);
}
constexpr int64_t kAvx2Flops = 12 * 8 * 2;

__attribute__((target("avx512f"))) float multiply_add_avx512(int64_t rounds) {
  __m512 sum[12];
  for (int j = 0; j < 12; ++j) sum[j] = _mm512_set1_ps(static_cast<float>(j));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = _mm512_fmadd_ps(s, a, b);
  }
  __m512 total = sum[0];
  for (int j = 1; j < 12; ++j) total = _mm512_add_ps(total, sum[j]);
  return _mm512_cvtss_f32(total);
}
constexpr int64_t kAvx512Flops = 12 * 16 * 2;

#endif

// Shortest of many short calls: other programs on the machine disturb some of them, not all.
template <typename F>
double best_seconds(int calls, F&& call) {
  double best = 1e30;
  for (int i = 0; i < calls; ++i) {
    const double begin = now_seconds();
    call(i);
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

}  // namespace

MachinePeak measure_peak(const cpu::CpuContext& context) {
  auto* read = read_plain;
  auto* multiply_add = multiply_add_plain;
  int64_t flops = kPlainFlops;
#if defined(__x86_64__)
  if (context.isa >= cpu::Isa::kAvx2) {
    read = read_avx2;
    multiply_add = multiply_add_avx2;
    flops = kAvx2Flops;
  }
  if (context.isa >= cpu::Isa::kAvx512) {
    multiply_add = multiply_add_avx512;
    flops = kAvx512Flops;
  }
#endif
  volatile int64_t sink = 0;
  constexpr int64_t kPiece = int64_t{1} << 20;  // a thread's share of a call
  constexpr int kCalls = 128;
  const int64_t threads = context.pool->num_threads();
  Buffer memory = cpu::allocate_memory(static_cast<size_t>(kCalls * threads * kPiece + 4096));
  std::memset(memory.data(), 1, memory.bytes());
  MachinePeak peak;
  const double read_seconds = best_seconds(3 * kCalls, [&](int call) {
    context.pool->run([&](int thread) {
      sink = sink + read(memory.data() + (call % kCalls * threads + thread) * kPiece, kPiece);
    });
  });
  peak.read_bytes_per_second = static_cast<double>(threads * kPiece) / read_seconds;
  constexpr int64_t kRounds = 100'000;
  const double flop_seconds = best_seconds(300, [&](int) {
    context.pool->run([&](int) { sink = sink + static_cast<int64_t>(multiply_add(kRounds)); });
  });
  peak.flops_per_second = static_cast<double>(kRounds * flops * threads) / flop_seconds;
  return peak;
}

}  // namespace zipage
