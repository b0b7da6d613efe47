// What an op of the CPU backend runs with.
#pragma once

#include <cstddef>

#include "backend/cpu/runtime/memory.h"
#include "backend/cpu/simd/isa.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace zipage::cpu {

// One a stream; used by one thread at a time.
struct CpuContext {
  ThreadPool* pool = nullptr;
  Isa isa = Isa::kScalar;
  CpuFeatures features;
  DType dtype = DType::kF32;   // kBF16: inputs of products may be rounded to bf16
  Scratch* scratch = nullptr;  // for the inside of one op
};

}  // namespace zipage::cpu
