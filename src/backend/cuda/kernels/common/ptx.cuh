// Single PTX instructions that C++ has no name for, and that no other header of common/ is about: approximate powers and
// logarithms, named barriers, memory order between blocks, register limits of a warpgroup, clusters.
//
// Every function here is one instruction (two where the head says so). Copies are in async.cuh, tensor cores in mma.cuh
// and wgmma.cuh, shuffles in reduce.cuh.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace zipage {

// The 32-bit address in the shared-memory window that PTX instructions take.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// This thread's number in its warp.
__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % 32; }

// ---- Arithmetic ----

// 2^x to about 2 units in the last place; 0 for x = -inf.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// log2(x) to about 1 unit in the last place of 1; -inf for x = 0.
__device__ inline float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Keeps `x` in its register up to here. wgmma writes its accumulators asynchronously, and the compiler must not move a
// read of one before the wait.
__device__ inline void pin_register(float& x) { asm volatile("" : "+f"(x)::"memory"); }
template <int N>
__device__ inline void pin_registers(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) pin_register(x[i]);
}

// 16 bytes of zeros.
__device__ inline void store_shared_zero_16(uint32_t to) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

// ---- Barriers among some warps of a block ----

// Barrier `id` (1 to 15; 0 is that of __syncthreads) completes when `threads` threads have arrived, waiting or not.
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- Memory order between blocks ----

__device__ inline uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void add_release(uint32_t* to, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
// Adds 1 and returns the value before. What this thread saw before is visible to whoever sees the sum, and the other way
// round.
__device__ inline uint32_t increment_acq_rel(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}
// Relaxed accesses: single stores that other blocks see whole, without order among them.
__device__ inline void store_relaxed(float* to, float value) {
  asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__device__ inline void store_relaxed(float2* to, float2 value) {
  const uint64_t bits = static_cast<uint64_t>(__float_as_uint(value.y)) << 32 |
                        static_cast<uint64_t>(__float_as_uint(value.x));
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(bits) : "memory");
}
__device__ inline float load_relaxed(const float* from) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline float2 load_relaxed(const float2* from) {
  uint64_t bits;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(from) : "memory");
  return make_float2(__uint_as_float(static_cast<uint32_t>(bits)),
                     __uint_as_float(static_cast<uint32_t>(bits >> 32)));
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- Registers of a warpgroup (sm_90a) ----

template <int kRegisters>
__device__ inline void set_max_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void set_max_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- Clusters (sm_90) ----

// All threads of the cluster meet; two instructions.
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
// The address in block `rank` of the cluster that corresponds to `address` in this one.
__device__ inline uint32_t cluster_address(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Stores 4 bytes in another block of the cluster and counts them on an mbarrier of that block.
__device__ inline void cluster_store_async(uint32_t to, float value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}

#endif  // sm_90a

}  // namespace zipage
