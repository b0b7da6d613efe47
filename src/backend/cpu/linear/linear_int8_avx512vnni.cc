// GEMM of packed weights with 8-bit inputs for AVX-512 VNNI.
//
// Idea: vpdpbusd adds four products of unsigned and signed bytes to a 32-bit lane, so that a line of
// a panel, [16 outputs][4 inputs], is one instruction for each row. Signed weights get 128 added and
// 128 times the sum of the inputs taken off at the end.
//
// Cost of 6144 x 1024 in Q8_0 (8.5 bits a weight): 6.7 MB and 12.6 Mop a row; one row is bound by
// memory. linear_plan.cc says from how many rows on AMX tiles take over.
// Measure with bench_ops_cpu_linear --dtype q8_0 --compute bf16.
#include "backend/cpu/linear/int8_gemm.h"

namespace zipage::cpu {
namespace {

struct Vnni {
  static constexpr int kMaxRows = 8;  // chains of sums: a product takes several cycles

  template <PanelFormat kFormat, int R>
  static ZIPAGE_INLINE void dots(
      const std::byte* integers, int part, const Int8Block* x, int64_t x_stride, Vec (&dot)[R][1]) {
    constexpr int kLines = 8 / num_parts(kFormat);
    __m512i sum[R];
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_si512();
    ZIPAGE_UNROLL
    for (int t = 0; t < kLines; ++t) {
      const int j = line_at(kFormat, part, t);
      IVec q = quant_line<kFormat>(integers, j, 0);
      if constexpr (kFormat == PanelFormat::kQ8) {
        q = {_mm512_xor_si512(q.v, splat_bytes(static_cast<char>(0x80)).v)};
      }
      ZIPAGE_UNROLL
      for (int r = 0; r < R; ++r) {
        const IVec in = splat_lanes(four_inputs(x[r * x_stride], j));
        sum[r] = _mm512_dpbusd_epi32(sum[r], q.v, in.v);
      }
    }
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Int8Block& in = x[r * x_stride];
      if constexpr (kFormat == PanelFormat::kQ8) {
        const IVec inputs = splat_lanes(in.sums[0] + in.sums[1]);
        sum[r] = _mm512_sub_epi32(sum[r], (inputs << 7).v);
      }
      if constexpr (kFormat == PanelFormat::kQ6K) {
        sum[r] = _mm512_sub_epi32(sum[r], (splat_lanes(in.sums[part]) << 5).v);
      }
      dot[r][0] = to_float(IVec{sum[r]});
    }
  }
};

}  // namespace

LinearKernel linear_int8_avx512vnni(PanelFormat format) { return int8_kernel<Vnni>(format); }

}  // namespace zipage::cpu
