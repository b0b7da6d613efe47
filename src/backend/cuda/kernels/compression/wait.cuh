// How the blocks of one unit wait for each other within a launch.
//
// Work is taken by ticket, so that a block that waits only waits for blocks that run already or will take one of the next
// tickets. What travels is either ordered by a counter (unit_barrier), or published: single relaxed stores whose reader spins
// until the value is no longer the bits that the launch began with.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/kernels/common/ptx.cuh"

namespace zipage::compression {

inline constexpr unsigned kSpinNanoseconds = 20;

// The next ticket; all threads get it.
__device__ inline uint32_t take_ticket(uint32_t* tickets, uint32_t* shared) {
  if (threadIdx.x == 0) *shared = atomicAdd(tickets, 1u);
  __syncthreads();
  return *shared;
}

// Says that this block is done with its part; what it wrote is visible to those that see the count.
__device__ inline void arrive(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) add_release(counter, 1);
}

// Waits until `expected` blocks have arrived; what they wrote is visible after (read it with
// __ldcg).
__device__ inline void wait_for(uint32_t* counter, uint32_t expected) {
  if (threadIdx.x == 0) {
    while (load_acquire(counter) < expected) __nanosleep(kSpinNanoseconds);
  }
  __syncthreads();
}

__device__ inline void unit_barrier(uint32_t* counter, uint32_t expected) {
  arrive(counter);
  wait_for(counter, expected);
}

// Published values. The workspace is filled with kUnpublishedByte before the launch; no sum and no maximum has all bits set
// (the NaN of the hardware, and of fmaxf(), is 0x7fffffff).
inline constexpr int kUnpublishedByte = 0xff;
inline constexpr uint32_t kUnpublished = 0xffffffffu;
__device__ inline bool is_published(float value) { return __float_as_uint(value) != kUnpublished; }
__device__ inline bool is_published(float2 value) { return is_published(value.x); }
// Spins until `value`, read from `from` before, is published.
template <typename T>
__device__ inline void wait_until_published(T& value, const T* from) {
  while (!is_published(value)) {
    __nanosleep(kSpinNanoseconds);
    value = load_relaxed(from);
  }
}

// Blocks that may wait for each other without filling the device, even when two kernels do.
inline int max_waiting_blocks(const CudaContext& context) { return context.num_sms / 2; }

}  // namespace zipage::compression
