// Packed weights (panel_format.h) in f32: a GEMV that unpacks them as it goes (one row), and panels
// unpacked into scratch for the GEMM over f32 (several rows). Serves every machine with AVX2.
//
// Idea: a weight is rounded once, as the file's definition says (scale times integer is exact), and a
// sum is the same chain of fused multiply-adds as of f32 weights. Both ways give the same bits.
//
// Cost of 6144 x 1024 in Q4_K (4.5 bits a weight): 3.5 MB and 12.6 Mflop a row, and
// the instructions that unpack every weight for the one multiply-add that it serves.
// Measure with bench_ops_cpu_linear --dtype q4_k --compute f32.
#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/linear/quant_vec.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kPrefetchBytes = 4096;  // ahead, over all panels that are read at a time

// Bits [from, ...) of every lane moved to bit 4 and up, those of `mask` kept.
ZIPAGE_INLINE IVec lanes_to_bit_4(IVec line, int from, int mask) {
  return (from >= 4 ? line >> (from - 4) : line << (4 - from)) & splat_lanes(mask);
}

// Integers of input k of a block.
template <PanelFormat kFormat>
ZIPAGE_INLINE Vec integer(const std::byte* integers, int k, int v) {
  constexpr int kBits = quant_layout(kFormat).bits;
  const std::byte* at = integers + kVectorBytes * v;
  const int j = k / 4, i = k % 4;
  if constexpr (kBits == 8) {
    return to_float(shift_right_signed(load_line(at + kLineBytes * j) << (24 - 8 * i), 24));
  }
  const IVec line = load_line(at + kLineBytes * (j % 4));
  IVec q = line >> (8 * i + (j < 4 ? 0 : 4)) & splat_lanes(0xf);
  if constexpr (kBits == 5) q = q | lanes_to_bit_4(load_line(at + 256), 8 * i + j, 0x10);
  if constexpr (kBits == 6) {
    const IVec upper = load_line(at + 256 + kLineBytes * (j / 4));
    q = q | lanes_to_bit_4(upper, 8 * i + 2 * (j % 4), 0x30);
  }
  return to_float(q);
}

template <PanelFormat kFormat>
ZIPAGE_INLINE Vec weight(Vec q, const QuantScales& s) {
  return kFormat == PanelFormat::kQ8 ? s.d * q : fma(s.d, q, s.c);
}

template <PanelFormat kFormat>
void expand(const std::byte* panel, int64_t in_features, float* out) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kScaleBytes = kLayout.scale_bytes(), kIntegerBytes = kLayout.integer_bytes();
  const int64_t num_groups = in_features / kLayout.group_inputs();
  for (int64_t g = 0; g < num_groups; ++g, panel += kLayout.group_bytes()) {
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, out += kQuantBlock * kPanel) {
      const std::byte* integers = panel + kScaleBytes + b * kIntegerBytes;
      for (int v = 0; v < kPanelVectors; ++v) {
        const QuantScales s[2] = {quant_scales<kFormat>(panel, b, 0, v),
                                  quant_scales<kFormat>(panel, b, 1, v)};
        ZIPAGE_UNROLL
        for (int k = 0; k < kQuantBlock; ++k) {
          const Vec q = integer<kFormat>(integers, k, v);
          store(out + k * kPanel + kWidth * v, weight<kFormat>(q, s[k / 16]));
        }
      }
    }
  }
}

// Inputs [16 part, 16 part + 16) of a block.
template <PanelFormat kFormat, int P>
ZIPAGE_INLINE void multiply_half_block(const LinearTask& task,
                                       const std::byte* group,
                                       int64_t block,
                                       int part,
                                       const float* x,
                                       Vec (&sums)[P][kPanelVectors]) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  QuantScales s[P][kPanelVectors];
  ZIPAGE_UNROLL
  for (int p = 0; p < P; ++p) {
    ZIPAGE_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) {
      s[p][v] = quant_scales<kFormat>(group + p * task.panel_bytes, block, part, v);
    }
  }
  const std::byte* integers = group + kLayout.scale_bytes() + block * kLayout.integer_bytes();
  ZIPAGE_UNROLL
  for (int k = 16 * part; k < 16 * part + 16; ++k) {
    const Vec wide = splat(x[k]);
    ZIPAGE_UNROLL
    for (int p = 0; p < P; ++p) {
      ZIPAGE_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        const Vec q = integer<kFormat>(integers + p * task.panel_bytes, k, v);
        sums[p][v] = fma(wide, weight<kFormat>(q, s[p][v]), sums[p][v]);
      }
    }
  }
}

// One row against panels [p, p + P).
template <PanelFormat kFormat, int P>
void run_panels(const LinearTask& task, int64_t p) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kGroupBytes = kLayout.group_bytes(), kAhead = kPrefetchBytes / P;
  Vec sums[P][kPanelVectors];
  ZIPAGE_UNROLL
  for (int i = 0; i < P * kPanelVectors; ++i) {
    sums[i / kPanelVectors][i % kPanelVectors] =
        task.bias == nullptr ? zero() : load(task.bias + p * kPanel + kWidth * i);
  }
  const std::byte* group = task.panels + p * task.panel_bytes;
  const float* x = task.x;
  const int64_t num_groups = task.in_features / kLayout.group_inputs();
  const int64_t near = num_groups - kAhead / kGroupBytes;
  for (int64_t g = 0; g < num_groups; ++g, group += kGroupBytes) {
    const int64_t ahead = g < near ? kAhead : (P - 1) * task.panel_bytes + kAhead;
    ZIPAGE_UNROLL
    for (int q = 0; q < P; ++q) {
      const std::byte* from = group + q * task.panel_bytes + ahead;
      for (int64_t byte = 0; byte < kGroupBytes; byte += 64) __builtin_prefetch(from + byte, 0, 3);
    }
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, x += kQuantBlock) {
      multiply_half_block<kFormat, P>(task, group, b, 0, x, sums);
      multiply_half_block<kFormat, P>(task, group, b, 1, x, sums);
    }
  }
  alignas(64) float out[P * kPanel];
  ZIPAGE_UNROLL
  for (int i = 0; i < P * kPanelVectors; ++i) {
    store(out + kWidth * i, sums[i / kPanelVectors][i % kPanelVectors]);
  }
  const int64_t first = p * kPanel;
  const int64_t left = task.num_outputs - first;
  for (int64_t n = 0; n < P * kPanel && n < left; ++n) task.out[first + n] = out[n];
}

template <PanelFormat kFormat>
void run_row(const LinearTask& task) {
  int64_t p = task.panel_begin;
  for (; p + 2 <= task.panel_end; p += 2) run_panels<kFormat, 2>(task, p);
  if (p < task.panel_end) run_panels<kFormat, 1>(task, p);
}

}  // namespace

ExpandPanel expand_avx2(PanelFormat format) {
  static constexpr ExpandPanel kOf[kNumQuantFormats] = {
      expand<PanelFormat::kQ8>,  expand<PanelFormat::kQ4>,    expand<PanelFormat::kQ4Min>,
      expand<PanelFormat::kQ5>,  expand<PanelFormat::kQ5Min>, expand<PanelFormat::kQ4K>,
      expand<PanelFormat::kQ5K>, expand<PanelFormat::kQ6K>};
  return kOf[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
}

LinearKernel quant_gemv_avx2(PanelFormat format) {
  static constexpr LinearKernel kOf[kNumQuantFormats] = {
      run_row<PanelFormat::kQ8>,  run_row<PanelFormat::kQ4>,    run_row<PanelFormat::kQ4Min>,
      run_row<PanelFormat::kQ5>,  run_row<PanelFormat::kQ5Min>, run_row<PanelFormat::kQ4K>,
      run_row<PanelFormat::kQ5K>, run_row<PanelFormat::kQ6K>};
  return kOf[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
}

}  // namespace zipage::cpu
