// Which instruction sets the machine and its operating system offer, and which of them the kernels
// use.
#pragma once

#include <string>
#include <string_view>

namespace zipage::cpu {

// Each level includes the ones before it.
enum class Isa {
  kScalar,  // any CPU
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // AVX-512 F, BW, VL, DQ; BF16 and VNNI products where the machine has them
  kAmx,     // AMX-BF16 and AMX-INT8, with AVX-512 BF16 and VNNI
};

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx = false;
};

const char* isa_name(Isa isa);  // "scalar", "avx2", ...

// CPUID, the registers the operating system saves (XCR0), and for AMX the kernel's permission.
CpuFeatures detect_cpu_features();
Isa best_isa(const CpuFeatures& features);
bool is_supported(Isa isa, const CpuFeatures& features);

// The ISA named by `option`, else by the environment variable ZIPAGE_CPU_ISA, else the best. An
// unknown word and an ISA that the machine lacks throw kInvalidArgument and kUnavailable.
Isa choose_isa(std::string_view option, const CpuFeatures& features);

std::string cpu_model_name();  // "AMD EPYC 7763 64-Core Processor"; "CPU" when unknown

}  // namespace zipage::cpu
