// Packed weights (quant_panel.h) with AVX2: as f32 in panels of scratch, for several rows, and
// multiplied as they lie, for one. A weight is rounded once, as the file's definition says (scale
// times integer is exact), and a sum is the same chain of fused multiply-adds as of f32 weights:
// both ways give the same bits.
#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/unroll.h"
#include "backend/cpu/x86.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kBlock = 32;            // inputs
constexpr int64_t kPrefetchBytes = 4096;  // ahead, over all streams

template <bool kNibbles, bool kMinima>
struct Layout {
  static constexpr bool nibbles = kNibbles;
  static constexpr bool has_offset = kNibbles || kMinima;  // of weight = scale q + offset
  static constexpr int64_t header = kMinima ? 64 : 32;
  static constexpr int64_t lines = kNibbles ? 4 : 8;
  static constexpr int64_t block = header + 64 * lines;

  static ZIPAGE_ALWAYS_INLINE inline __m256 scale(const std::byte* p, int half) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + half));
  }
  static ZIPAGE_ALWAYS_INLINE inline __m256 offset(const std::byte* p, int half) {
    if (kMinima)
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 32) + half));
    return _mm256_mul_ps(scale(p, half), _mm256_set1_ps(-8.0f));
  }
  // Input i of the 4 of a line, 8 outputs; `high`: of the high halves of nibbles.
  static ZIPAGE_ALWAYS_INLINE inline __m256 integer(__m256i line, int i, bool high) {
    if (kNibbles) {
      const __m256i low_bits = _mm256_set1_epi32(0xf);
      return _mm256_cvtepi32_ps(
          _mm256_and_si256(_mm256_srli_epi32(line, 8 * i + (high ? 4 : 0)), low_bits));
    }
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(line, 24 - 8 * i), 24));
  }
  static ZIPAGE_ALWAYS_INLINE inline __m256 weight(__m256 q, __m256 d, __m256 c) {
    return has_offset ? _mm256_fmadd_ps(d, q, c) : _mm256_mul_ps(d, q);
  }
};

template <typename L>
void expand(const std::byte* panel, int64_t num_blocks, float* out) {
  for (int64_t b = 0; b < num_blocks; ++b, panel += L::block) {
    for (int h = 0; h < 2; ++h) {
      const __m256 d = L::scale(panel, h), c = L::offset(panel, h);
      for (int64_t j = 0; j < kBlock / 4; ++j) {
        const auto* at =
            reinterpret_cast<const __m256i*>(panel + L::header + 64 * (j % L::lines)) + h;
        const __m256i line = _mm256_loadu_si256(at);
        const bool high = j >= L::lines;
        float* to = out + (b * kBlock + 4 * j) * kPanel + 8 * h;
        if (high) {
          unroll<4>([&](auto i) ZIPAGE_ALWAYS_INLINE {
            _mm256_storeu_ps(to + i * kPanel, L::weight(L::integer(line, i, true), d, c));
          });
        } else {
          unroll<4>([&](auto i) ZIPAGE_ALWAYS_INLINE {
            _mm256_storeu_ps(to + i * kPanel, L::weight(L::integer(line, i, false), d, c));
          });
        }
      }
    }
  }
}

// One row against P panels.
template <typename L, int P>
ZIPAGE_ALWAYS_INLINE inline void multiply_row(const LinearTask& task,
                                              int64_t p,
                                              __m256 (&sum)[P][2]) {
  const std::byte* block = task.panels + p * task.panel_bytes;
  const float* x = task.x;
  const int64_t num_blocks = task.in_features / kBlock;
  constexpr int64_t kAhead = kPrefetchBytes / P;
  const int64_t near = num_blocks - kAhead / L::block;
  for (int64_t b = 0; b < num_blocks; ++b, block += L::block, x += kBlock) {
    const int64_t ahead = b < near ? kAhead : (P - 1) * task.panel_bytes + kAhead;
    __m256 d[P][2], c[P][2];
    unroll<P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
      constexpr int q = i / 2, h = i % 2;
      const std::byte* at = block + q * task.panel_bytes;
      d[q][h] = L::scale(at, h);
      c[q][h] = L::has_offset ? L::offset(at, h) : _mm256_setzero_ps();
      for (int64_t byte = 64 * h; byte < L::block; byte += 128) {
        _mm_prefetch(reinterpret_cast<const char*>(at + ahead + byte), _MM_HINT_T0);
      }
    });
    const auto lines = [&](auto high) ZIPAGE_ALWAYS_INLINE {
      for (int64_t j = 0; j < L::lines; ++j) {
        const float* xj = x + (high ? 16 : 0) + 4 * j;
        __m256i line[P][2];
        unroll<P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
          constexpr int q = i / 2, h = i % 2;
          const std::byte* at = block + q * task.panel_bytes + L::header + 64 * j;
          line[q][h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + h);
        });
        unroll<4>([&](auto i) ZIPAGE_ALWAYS_INLINE {
          const __m256 wide = _mm256_broadcast_ss(xj + i);
          unroll<P * 2>([&](auto t) ZIPAGE_ALWAYS_INLINE {
            constexpr int q = t / 2, h = t % 2;
            const __m256 w = L::weight(L::integer(line[q][h], i, high), d[q][h], c[q][h]);
            sum[q][h] = _mm256_fmadd_ps(wide, w, sum[q][h]);
          });
        });
      }
    };
    lines(std::false_type{});
    if constexpr (L::nibbles) lines(std::true_type{});
  }
}

template <typename L, int P>
void run_panels(const LinearTask& task, int64_t p) {
  __m256 sum[P][2];
  unroll<P * 2>([&](auto i) ZIPAGE_ALWAYS_INLINE {
    const int64_t at = (p + i / 2) * kPanel + 8 * (i % 2);
    sum[i / 2][i % 2] =
        task.bias == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(task.bias + at);
  });
  multiply_row<L, P>(task, p, sum);
  alignas(32) float out[P * kPanel];
  unroll<P * 2>([&](auto i)
                    ZIPAGE_ALWAYS_INLINE { _mm256_store_ps(out + 8 * i, sum[i / 2][i % 2]); });
  const int64_t first = p * kPanel;
  const int64_t left = task.num_outputs - first;
  for (int64_t n = 0; n < P * kPanel && n < left; ++n) task.out[first + n] = out[n];
}

template <typename L>
void run_row(const LinearTask& task) {
  int64_t p = task.panel_begin;
  for (; p + 2 <= task.panel_end; p += 2) run_panels<L, 2>(task, p);
  if (p < task.panel_end) run_panels<L, 1>(task, p);
}

using Q8 = Layout<false, false>;
using Q8Min = Layout<false, true>;
using Q4 = Layout<true, false>;
using Q4Min = Layout<true, true>;

}  // namespace

void expand_q8_avx2(const std::byte* panel, int64_t num_blocks, float* out) {
  expand<Q8>(panel, num_blocks, out);
}
void expand_q8min_avx2(const std::byte* panel, int64_t num_blocks, float* out) {
  expand<Q8Min>(panel, num_blocks, out);
}
void expand_q4_avx2(const std::byte* panel, int64_t num_blocks, float* out) {
  expand<Q4>(panel, num_blocks, out);
}
void expand_q4min_avx2(const std::byte* panel, int64_t num_blocks, float* out) {
  expand<Q4Min>(panel, num_blocks, out);
}

void linear_row_q8_avx2(const LinearTask& task) { run_row<Q8>(task); }
void linear_row_q8min_avx2(const LinearTask& task) { run_row<Q8Min>(task); }
void linear_row_q4_avx2(const LinearTask& task) { run_row<Q4>(task); }
void linear_row_q4min_avx2(const LinearTask& task) { run_row<Q4Min>(task); }

}  // namespace zipage::cpu
