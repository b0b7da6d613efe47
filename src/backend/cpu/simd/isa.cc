#include "backend/cpu/simd/isa.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace zipage::cpu {
namespace {

#if defined(__x86_64__)

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (static_cast<uint32_t>(__get_cpuid_max(leaf & 0x80000000u, nullptr)) < leaf) return r;
  __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
  return r;
}

bool bit(uint32_t value, int index) { return (value >> index & 1u) != 0; }

// Register states that the operating system saves on a context switch.
uint64_t saved_states() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Linux hands out the 8 KB of tile data only to processes that ask (arch_prctl(2),
// ARCH_REQ_XCOMP_PERM). Threads started later inherit the permission.
bool request_tile_permission() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#endif

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  const Registers one = cpuid(1, 0);
  const bool os_saves = bit(one.c, 27);
  if (!os_saves) return features;
  const uint64_t states = saved_states();
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe0, kTiles = 0x60000;
  const bool fma = bit(one.c, 12), avx = bit(one.c, 28), f16c = bit(one.c, 29);
  features.avx2 = (states & kYmm) == kYmm && avx && fma && f16c && bit(seven.b, 5);
  features.avx512 = features.avx2 && (states & kZmm) == kZmm && bit(seven.b, 16) &&
                    bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);  // F, DQ, BW, VL
  features.avx512_bf16 = features.avx512 && bit(seven_one.a, 5);
  features.avx512_vnni = features.avx512 && bit(seven.c, 11);
  const bool tiles = bit(seven.d, 22) && bit(seven.d, 24) && bit(seven.d, 25);  // BF16, TILE, INT8
  features.amx = features.avx512_bf16 && features.avx512_vnni && (states & kTiles) == kTiles &&
                 tiles && request_tile_permission();
#endif
  return features;
}

bool is_supported(Isa isa, const CpuFeatures& features) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return features.avx2;
    case Isa::kAvx512:
      return features.avx512;
    case Isa::kAmx:
      return features.amx;
  }
  return false;
}

Isa best_isa(const CpuFeatures& features) {
  for (const Isa isa : {Isa::kAmx, Isa::kAvx512, Isa::kAvx2}) {
    if (is_supported(isa, features)) return isa;
  }
  return Isa::kScalar;
}

Isa choose_isa(std::string_view option, const CpuFeatures& features) {
  std::string_view source = "isa";
  if (option.empty()) {
    const char* forced = std::getenv("ZIPAGE_CPU_ISA");
    if (forced == nullptr || *forced == '\0') return best_isa(features);
    option = forced;
    source = "ZIPAGE_CPU_ISA";
  }
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (option != isa_name(isa)) continue;
    if (!is_supported(isa, features)) {
      fail(StatusCode::kUnavailable,
           "{} '{}': this CPU or its operating system lacks it; the best here is {}", source,
           option, isa_name(best_isa(features)));
    }
    return isa;
  }
  fail_invalid("{} '{}': expected scalar, avx2, avx512 or amx", source, option);
}

std::string cpu_model_name() {
#if defined(__x86_64__)
  char text[49] = {};
  if (cpuid(0x80000000u, 0).a >= 0x80000004u) {
    for (uint32_t i = 0; i < 3; ++i) {
      const Registers r = cpuid(0x80000002u + i, 0);
      std::memcpy(text + 16 * i, &r, 16);
    }
    std::string name(text);
    while (!name.empty() && name.back() == ' ') name.pop_back();
    while (!name.empty() && name.front() == ' ') name.erase(0, 1);
    if (!name.empty()) return name;
  }
#endif
  return "CPU";
}

}  // namespace zipage::cpu
