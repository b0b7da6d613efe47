// Packed weights (panel_format.h) with AVX2: as f32 in panels of scratch, for several rows, and
// multiplied as they lie, for one. A weight is rounded once, as the file's definition says (scale
// times integer is exact), and a sum is the same chain of fused multiply-adds as of f32 weights:
// both ways give the same bits.
#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/linear/quant_scales_avx2.h"
#include "backend/cpu/simd/unroll.h"
#include "backend/cpu/simd/x86.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kPrefetchBytes = 4096;  // ahead, over all streams

ZIPAGE_ALWAYS_INLINE inline __m256i load_half(const std::byte* line, int half) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + half);
}

// Bits [kFrom, ...) of every 32-bit lane moved to bit 4 and up, those of `mask` kept.
template <int kFrom>
ZIPAGE_ALWAYS_INLINE inline __m256i to_bit_4(__m256i line, int mask) {
  const __m256i moved = kFrom >= 4 ? _mm256_srli_epi32(line, kFrom >= 4 ? kFrom - 4 : 0)
                                   : _mm256_slli_epi32(line, kFrom >= 4 ? 0 : 4 - kFrom);
  return _mm256_and_si256(moved, _mm256_set1_epi32(mask));
}

// Integers of input 4 j + i of a block, 8 outputs.
template <PanelFormat kFormat, int j, int i>
ZIPAGE_ALWAYS_INLINE inline __m256 integer(const std::byte* integers, int half) {
  constexpr int kBits = quant_layout(kFormat).bits;
  if constexpr (kBits == 8) {
    const __m256i line = load_half(integers + 64 * j, half);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(line, 24 - 8 * i), 24));
  }
  const __m256i line = load_half(integers + 64 * (j % 4), half);
  __m256i q =
      _mm256_and_si256(_mm256_srli_epi32(line, 8 * i + (j < 4 ? 0 : 4)), _mm256_set1_epi32(0xf));
  if constexpr (kBits == 5) {
    q = _mm256_or_si256(q, to_bit_4<8 * i + j>(load_half(integers + 256, half), 0x10));
  }
  if constexpr (kBits == 6) {
    const __m256i upper = load_half(integers + 256 + 64 * (j / 4), half);
    q = _mm256_or_si256(q, to_bit_4<8 * i + 2 * (j % 4)>(upper, 0x30));
  }
  return _mm256_cvtepi32_ps(q);
}

template <PanelFormat kFormat>
ZIPAGE_ALWAYS_INLINE inline __m256 weight(__m256 q, const QuantScales& s) {
  return has_offset(kFormat) ? _mm256_fmadd_ps(s.d, q, s.c) : _mm256_mul_ps(s.d, q);
}

template <PanelFormat kFormat>
void expand(const std::byte* panel, int64_t in_features, float* out) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kGroupInputs = kLayout.group_inputs();
  constexpr int64_t kGroupBytes = kLayout.group_bytes(), kScaleBytes = kLayout.scale_bytes();
  constexpr int64_t kIntegerBytes = kLayout.integer_bytes();
  for (int64_t g = 0; g < in_features / kGroupInputs; ++g, panel += kGroupBytes) {
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, out += kQuantBlock * kPanel) {
      const std::byte* integers = panel + kScaleBytes + b * kIntegerBytes;
      for (int h = 0; h < 2; ++h) {
        const QuantScales s[2] = {quant_scales<kFormat>(panel, b, 0, h),
                                  quant_scales<kFormat>(panel, b, 1, h)};
        unroll<32>([&](auto k) ZIPAGE_ALWAYS_INLINE {
          _mm256_storeu_ps(out + k * kPanel + 8 * h,
                           weight<kFormat>(integer<kFormat, k / 4, k % 4>(integers, h), s[k / 16]));
        });
      }
    }
  }
}

// One row against P panels.
template <PanelFormat kFormat, int P>
ZIPAGE_ALWAYS_INLINE inline void multiply_row(const LinearTask& task,
                                              int64_t p,
                                              __m256 (&sum)[P][2]) {
  constexpr QuantLayout kLayout = quant_layout(kFormat);
  constexpr int64_t kGroupInputs = kLayout.group_inputs();
  constexpr int64_t kGroupBytes = kLayout.group_bytes(), kScaleBytes = kLayout.scale_bytes();
  constexpr int64_t kIntegerBytes = kLayout.integer_bytes();
  constexpr int64_t kAhead = kPrefetchBytes / P;
  const std::byte* group = task.panels + p * task.panel_bytes;
  const float* x = task.x;
  const int64_t num_groups = task.in_features / kGroupInputs;
  const int64_t near = num_groups - kAhead / kGroupBytes;
  for (int64_t g = 0; g < num_groups; ++g, group += kGroupBytes) {
    const int64_t ahead = g < near ? kAhead : (P - 1) * task.panel_bytes + kAhead;
    unroll<P>([&](auto q) ZIPAGE_ALWAYS_INLINE {
      const std::byte* from = group + q * task.panel_bytes + ahead;
      for (int64_t byte = 0; byte < kGroupBytes; byte += 64)
        _mm_prefetch(reinterpret_cast<const char*>(from + byte), _MM_HINT_T0);
    });
    for (int64_t b = 0; b < kLayout.num_blocks; ++b, x += kQuantBlock) {
      unroll<2>([&](auto part) ZIPAGE_ALWAYS_INLINE {  // 16 inputs each
        QuantScales s[P][2];
        unroll<P * 2>([&](auto t) ZIPAGE_ALWAYS_INLINE {
          s[t / 2][t % 2] = quant_scales<kFormat>(group + t / 2 * task.panel_bytes, b, part, t % 2);
        });
        unroll<16>([&](auto k) ZIPAGE_ALWAYS_INLINE {
          const __m256 wide = _mm256_broadcast_ss(x + part * 16 + k);
          unroll<P * 2>([&](auto t) ZIPAGE_ALWAYS_INLINE {
            constexpr int q = t / 2, h = t % 2;
            const std::byte* integers =
                group + q * task.panel_bytes + kScaleBytes + b * kIntegerBytes;
            const __m256 w =
                weight<kFormat>(integer<kFormat, part * 4 + k / 4, k % 4>(integers, h), s[q][h]);
            sum[q][h] = _mm256_fmadd_ps(wide, w, sum[q][h]);
          });
        });
      });
    }
  }
}

template <PanelFormat kFormat, int P>
void run_panels(const LinearTask& task, int64_t p) {
  __m256 sum[P][2];
  unroll<P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    const int64_t at = (p + i / 2) * kPanel + 8 * (i % 2);
    sum[i / 2][i % 2] =
        task.bias == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(task.bias + at);
  });
  multiply_row<kFormat, P>(task, p, sum);
  alignas(32) float out[P * kPanel];
  unroll<P * 2>([&](auto i)
                    ZIPAGE_ALWAYS_INLINE { _mm256_store_ps(out + 8 * i, sum[i / 2][i % 2]); });
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

LinearKernel linear_row_avx2(PanelFormat format) {
  static constexpr LinearKernel kOf[kNumQuantFormats] = {
      run_row<PanelFormat::kQ8>,  run_row<PanelFormat::kQ4>,    run_row<PanelFormat::kQ4Min>,
      run_row<PanelFormat::kQ5>,  run_row<PanelFormat::kQ5Min>, run_row<PanelFormat::kQ4K>,
      run_row<PanelFormat::kQ5K>, run_row<PanelFormat::kQ6K>};
  return kOf[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
}

}  // namespace zipage::cpu
