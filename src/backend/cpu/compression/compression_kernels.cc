// Inner loops of the compression ops.
//
// Idea: scores are dot products of a window of queries (or of unit keys) with every cached key. Keys
// lie entry by entry, so a tile of 16 of them is transposed once to [head_dim, 16] and then used by
// all rows: each lane owns one key, a dot product needs no sum across lanes, and j ascends for every
// pair, so that a similarity does not depend on the tile or the rows beside it.
//
// Cost of a window of 16 queries x 2 heads of a group over 2,048 keys of 128: 16.8 Mflop in dot_tile()
// over 0.5 MB of bf16 keys. Redundancy compares all pairs: 1.07 Gflop for
// 2,048 keys of one head. bench_ops_cpu_compression prints the share of the multiply-add peak.
#include "backend/cpu/compression/compression_kernels.h"

#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

// Rows of dot_tile() whose sums fit into the registers.
constexpr int kRows = kWidth == 16 ? 12 : kWidth == 8 ? 6 : 4;

template <typename T>
void load_typed(const std::byte* from, int64_t count, float scale, float* to) {
  const auto* src = reinterpret_cast<const T*>(from);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(to + i, load(src + i) * splat(scale));
  for (; i < count; ++i) to[i] = widen(src[i]) * scale;
}

// Squares of kSquare entries are transposed in registers, the rest one element at a time.
template <typename T>
void pack_typed(const std::byte* from, int count, int d, float scale, float* to) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const auto* src = reinterpret_cast<const T*>(from);
  int column = 0;
  for (; column + kSquare <= count; column += kSquare) {
    int j = 0;
    for (; j + kSquare <= d; j += kSquare) {
      transpose<T>(from + (int64_t{column} * d + j) * kBytes, d * kBytes, splat(scale),
                   to + int64_t{j} * kTile + column, kTile);
    }
    for (; j < d; ++j) {
      for (int c = column; c < column + kSquare; ++c) {
        to[j * kTile + c] = widen(src[int64_t{c} * d + j]) * scale;
      }
    }
  }
  if (column == kTile) return;
  for (int j = 0; j < d; ++j) {
    for (int c = column; c < kTile; ++c) {
      to[j * kTile + c] = c < count ? widen(src[int64_t{c} * d + j]) * scale : 0.0f;
    }
  }
}

void load_any(const std::byte* src, DType dtype, int64_t count, float scale, float* dst) {
  if (dtype == DType::kF32) return load_typed<F32>(src, count, scale, dst);
  if (dtype == DType::kBF16) return load_typed<BF16>(src, count, scale, dst);
  load_typed<F16>(src, count, scale, dst);
}

void pack_any(const std::byte* src, DType dtype, int count, int d, float scale, float* dst) {
  if (dtype == DType::kF32) return pack_typed<F32>(src, count, d, scale, dst);
  if (dtype == DType::kBF16) return pack_typed<BF16>(src, count, d, scale, dst);
  pack_typed<F16>(src, count, d, scale, dst);
}

// `rows` accumulators of kTile columns stay in registers.
template <int kCount>
ZIPAGE_INLINE void dot_rows(const float* q, int d, const float* tile, float* out, int64_t ld) {
  constexpr int kVectors = kTile / kWidth;
  Vec sums[kCount][kVectors];
  ZIPAGE_UNROLL
  for (int r = 0; r < kCount; ++r) {
    ZIPAGE_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
  }
  for (int j = 0; j < d; ++j) {
    Vec t[kVectors];
    ZIPAGE_UNROLL
    for (int v = 0; v < kVectors; ++v) t[v] = load(tile + int64_t{j} * kTile + v * kWidth);
    ZIPAGE_UNROLL
    for (int r = 0; r < kCount; ++r) {
      const Vec x = splat(q[int64_t{r} * d + j]);
      ZIPAGE_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x, t[v], sums[r][v]);
    }
  }
  ZIPAGE_UNROLL
  for (int r = 0; r < kCount; ++r) {
    ZIPAGE_UNROLL
    for (int v = 0; v < kVectors; ++v) store(out + r * ld + v * kWidth, sums[r][v]);
  }
}

void dot_tile(const float* q, int rows, int d, const float* tile, float* out, int64_t ld) {
  int r = 0;
  for (; r + kRows <= rows; r += kRows) {
    dot_rows<kRows>(q + int64_t{r} * d, d, tile, out + r * ld, ld);
  }
  for (; r + 2 <= rows; r += 2) dot_rows<2>(q + int64_t{r} * d, d, tile, out + r * ld, ld);
  for (; r < rows; ++r) dot_rows<1>(q + int64_t{r} * d, d, tile, out + r * ld, ld);
}

float dot(const float* a, const float* b, int64_t count) {
  Vec acc = zero();
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) acc = fma(load(a + i), load(b + i), acc);
  float total = sum(acc);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

void derotate(float* x, const float* cos_sin, int half) {
  int j = 0;
  for (; j + kWidth <= half; j += kWidth) {
    const Vec a = load(x + j);
    const Vec b = load(x + half + j);
    const Vec c = load(cos_sin + j);
    const Vec s = load(cos_sin + half + j);
    store(x + j, fma(b, s, a * c));
    store(x + half + j, fma(zero() - a, s, b * c));
  }
  for (; j < half; ++j) {
    const float a = x[j];
    const float b = x[half + j];
    x[j] = a * cos_sin[j] + b * cos_sin[half + j];
    x[half + j] = b * cos_sin[j] - a * cos_sin[half + j];
  }
}

void axpy(float a, const float* x, float* y, int64_t count) {
  const Vec s = splat(a);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(y + i, fma(s, load(x + i), load(y + i)));
  for (; i < count; ++i) y[i] += a * x[i];
}

float max_of(const float* x, int64_t n) {
  Vec top = load(x);
  for (int64_t i = kWidth; i < n; i += kWidth) top = max(top, load(x + i));
  return max_lane(top);
}

// 2^x by 2^round(x) times a polynomial of the rest, |rest| <= 1/2: relative error below 2e-7. 0
// below 2^-126.
ZIPAGE_INLINE Vec exp2_taylor(Vec x) {
  const Vec kMagic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec low = splat(-126.0f);
  const Vec clamped = max(x, low);
  const Vec t = clamped + kMagic;
  const Vec f = clamped - (t - kMagic);
  Vec p = splat(1.5252733804059840e-5f);  // ln(2)^k / k!
  p = fma(p, f, splat(1.5403530393381609e-4f));
  p = fma(p, f, splat(1.3333558146428443e-3f));
  p = fma(p, f, splat(9.6181291076284771e-3f));
  p = fma(p, f, splat(5.5504108664821580e-2f));
  p = fma(p, f, splat(2.4022650695910071e-1f));
  p = fma(p, f, splat(6.9314718055994531e-1f));
  p = fma(p, f, splat(1.0f));
  return zero_where(greater(low, x), add_exponent(p, t));
}

float sum_exp2(const float* x, float shift, int64_t n) {
  const Vec s = splat(shift);
  Vec acc = zero();
  for (int64_t i = 0; i < n; i += kWidth) acc = acc + exp2_taylor(load(x + i) + s);
  return sum(acc);
}

void max_shifted(float* m, const float* x, float shift, int64_t n) {
  const Vec s = splat(shift);
  for (int64_t i = 0; i < n; i += kWidth) {
    store(m + i, max(load(m + i), load(x + i) + s));
  }
}

void exp2_all(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store(x + i, exp2_taylor(load(x + i)));
}

void sweep(const float* similarities, int rows, float threshold, float* tags, float* sums) {
  constexpr int kVectors = kTile / kWidth;
  const Vec limit = splat(threshold);
  const Vec lowest = splat(-3.0e38f);  // -inf marks a pair that does not count
  Vec tag[kVectors];
  for (int v = 0; v < kVectors; ++v) tag[v] = load(tags + v * kWidth);
  for (int r = rows - 1; r >= 0; --r) {
    Vec total = zero();
    for (int v = 0; v < kVectors; ++v) {
      const Vec x = load(similarities + int64_t{r} * kTile + v * kWidth);
      // Above the threshold in a column without a tag.
      const Mask hit = greater(x, limit) & greater(splat(0.5f), tag[v]);
      total = total + zero_where(hit, zero_where(greater(lowest, x), x));
      tag[v] = select(hit, splat(1.0f), tag[v]);
    }
    sums[r] += sum(total);
  }
  for (int v = 0; v < kVectors; ++v) store(tags + v * kWidth, tag[v]);
}

}  // namespace

namespace ZIPAGE_ISA {
extern const CompressionKernels kCompression = {load_any,    pack_any, dot_tile, dot,
                                                derotate,    axpy,     max_of,   sum_exp2,
                                                max_shifted, exp2_all, sweep};
}  // namespace ZIPAGE_ISA
}  // namespace zipage::cpu
