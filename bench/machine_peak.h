// What this machine can do at best: the yardstick of the benchmark programs.
#pragma once

#include "backend/cpu/runtime/context.h"

namespace zipage {

struct MachinePeak {
  double read_bytes_per_second = 0;  // all threads of the pool, memory beyond the caches
  double flops_per_second = 0;       // f32 multiply-adds (two operations each), registers only
};

MachinePeak measure_peak(const cpu::CpuContext& context);

}  // namespace zipage
