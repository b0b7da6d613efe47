// The table of instruction sets: which kernels each of them runs.
//
// A kernel file (*_kernels.cc) is written over simd/vec.h and compiled once per instruction set, with
// ZIPAGE_ISA naming the namespace of its result: scalar, avx2 or avx512. This table is the only place
// that names those namespaces.
//
//   const AttentionKernels& kernels = kernel_set(context.isa).attention;
//
// Threads: constants. Owner: the program.
#pragma once

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/compression/compression_kernels.h"
#include "backend/cpu/elementwise/elementwise_kernels.h"
#include "backend/cpu/linear/gemm_kernels.h"
#include "backend/cpu/sample/sample_kernels.h"
#include "backend/cpu/simd/isa.h"

namespace zipage::cpu {

struct KernelSet {
  const AttentionKernels& attention;
  const CompressionKernels& compression;
  const ElementwiseKernels& elementwise;
  const GemmKernels& gemm;
  const SampleKernels& sample;
};

// AMX has tiles for GEMMs alone (linear/linear_plan.cc); everything else runs as with AVX-512.
const KernelSet& kernel_set(Isa isa);

}  // namespace zipage::cpu
