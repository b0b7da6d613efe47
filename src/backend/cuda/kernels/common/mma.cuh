// Warp-level tensor-core instructions (mma.sync m16n8k16, sm_80 on): bf16 or f16 operands, f32 accumulators; ldmatrix, and
// the swizzled layout of shared memory that it reads without bank conflicts.
//
// A lane's elements are written (row, column) with g = lane / 4, t = lane % 4. wgmma, for whole warpgroups, is in wgmma.cuh.
//
//   float d[4] = {};
//   for (each step of 16 of k) { load_matrices(a, ...); load_matrices(b, ...); mma<bf16>(d, a, b[0], b[1]); }
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace zipage {

// d[16 x 8] += a[16 x 16] b[16 x 8]. a: {(g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)}, pairs
// along k; b: {(2t, g), (2t + 8, g)}, pairs along k; d: {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8,
// 2t + 1)}.
template <typename T>
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void mma<__nv_bfloat16>(float (&d)[4],
                                          const uint32_t (&a)[4],
                                          uint32_t b0,
                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma<__half>(float (&d)[4],
                                   const uint32_t (&a)[4],
                                   uint32_t b0,
                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. Each thread gets (g,
// 2t), (g, 2t + 1).
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The same transposed: each thread gets (2t, g), (2t + 1, g).
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Transposes an 8 x 8 matrix held as (g, 2t), (g, 2t + 1).
__device__ inline uint32_t transpose_matrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  __builtin_memcpy(&bits, &pair, sizeof bits);
  return bits;
}

// Tiles of shared memory for ldmatrix: columns in chunks of kChunkBytes, each chunk [rows,
// kChunkBytes], the 16-byte units of a row permuted as TMA's swizzle of that width does. Base aligned
// to 1,024 bytes.
template <int kColumns>
struct SwizzledTile {
  static constexpr int kChunkColumns = kColumns % 64 == 0 ? 64 : kColumns % 32 == 0 ? 32 : 16;
  static constexpr int kChunkBytes = kChunkColumns * 2;
  static constexpr int kChunks = kColumns / kChunkColumns;
  static constexpr int kUnits = kChunkBytes / 16;  // of a row of a chunk
  // Byte offset of 16-byte unit `unit` (over all columns) of `row` in a tile of `rows`.
  static __device__ __host__ inline int offset(int row, int unit, int rows) {
    const int chunk = unit / kUnits;
    const int within = unit % kUnits;
    const int swizzle = (row * kChunkBytes / 128) & (kUnits - 1);
    return chunk * rows * kChunkBytes + row * kChunkBytes + ((within ^ swizzle) * 16);
  }

  // The same for unit 2 * step + high in pieces, so that a loop over steps costs one exclusive or
  // each: offset is (lane_part(row, high) ^ step_mask(step)) + step_part(step, rows). Rows 16
  // further on are 16 * kChunkBytes away.
  static __device__ inline uint32_t lane_part(int row, int high) {
    const int swizzle = (row * kChunkBytes / 128) & (kUnits - 1);
    return static_cast<uint32_t>(row * kChunkBytes + (high ^ swizzle) * 16);
  }
  static __device__ constexpr uint32_t step_mask(int step) {
    return static_cast<uint32_t>(2 * step % kUnits * 16);
  }
  static __device__ constexpr uint32_t step_part(int step, int rows) {
    return static_cast<uint32_t>(2 * step / kUnits * rows * kChunkBytes);
  }
};

}  // namespace zipage
