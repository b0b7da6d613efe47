// Loops that are unrolled before registers are given out.
//
// A kernel keeps its sums in an array of vectors. The compiler holds such an array in registers only
// if every index is a constant by the time it lays the array out, so loops over it are marked:
//
//   ZIPAGE_UNROLL for (int r = 0; r < R; ++r) sums[r] = fma(x[r], w, sums[r]);
//
// The count must be a constant. (Lambdas that were called once for each index did the same and took
// twice as long to compile: every level of them is inlined on its own.)
#pragma once

#define ZIPAGE_INLINE inline __attribute__((always_inline))

#if defined(__clang__)
#define ZIPAGE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ZIPAGE_UNROLL _Pragma("GCC unroll 64")
#endif
