// Paged attention over one span of one KV head, RoPE and the norms before it, the store into the KV
// cache.
//
// Idea: a span (about 256 entries) goes through three passes: scores of a tile of queries, softmax in
// powers of two, weighted sum of V. Groups of 3 queries x 4 entries keep their sums in registers, so
// that a loaded key serves three queries. K and V are widened as they are loaded; with many queries a
// tile of 32 entries is widened once into scratch. The driver (attention.cc) cuts rows into spans and
// combines their partials in order (flash-decoding).
//
// Order of sums, the same for one query or many: a score adds over head_dim in lanes of a vector,
// lanes joined as a tree; a weighted sum of V adds entry by entry; a sum of weights adds in lanes over
// entries.
//
// Cost of one decoded token at 2,048 entries, 8 KV heads of 128, bf16: 8.4 MB of K and V and 4 Mflop
// for each query head that shares them.
// bench_ops_cpu_attention prints the share of the measured bandwidth and of the multiply-add peak.
// Tried and dropped: relying on the hardware's prefetcher (blocks are too short and too far apart);
// widening into scratch for up to 4 groups of queries (writing and reading back costs more).
#include "backend/cpu/attention/attention_kernels.h"

#include "backend/cpu/simd/vec.h"

namespace zipage::cpu {
namespace {

// Queries that share the registers of one inner loop: 3 x 4 sums, 3 queries and 1 operand are 16
// registers.
constexpr int kQueryGroup = 3;
constexpr int kEntryGroup = 4;
constexpr int kChunkGroup = 4;
// Up to so many groups, each widens the rows for itself: cheaper than writing them out and reading
// them back.
constexpr int kDirectGroups = 4;
// How far ahead memory is asked for.
constexpr int kAheadEntries = 32;

// scores[q][e] = queries[q] . rows[e] for GQ queries and GE rows. Rows are `row_stride` elements
// apart.
template <int GQ, int GE, typename T>
ZIPAGE_INLINE void dot_tile(const float* queries,
                            int padded_dim,
                            const T* rows,
                            int row_stride,
                            float* scores,
                            int score_stride) {
  Vec sums[GQ][GE];
  for (int q = 0; q < GQ; ++q) {
    for (int e = 0; e < GE; ++e) sums[q][e] = zero();
  }
  for (int d = 0; d < padded_dim; d += kWidth) {
    Vec query[GQ];
    for (int q = 0; q < GQ; ++q) query[q] = load(queries + q * padded_dim + d);
    for (int e = 0; e < GE; ++e) {
      const Vec key = load(rows + e * row_stride + d);
      for (int q = 0; q < GQ; ++q) sums[q][e] = fma(query[q], key, sums[q][e]);
    }
  }
  if constexpr (GE == kEntryGroup) {
    int q = 0;
    for (; q + 2 <= GQ; q += 2) {
      float* first = scores + q * score_stride;
      store_sum4(first, first + score_stride, sums[q], sums[q + 1]);
    }
    for (; q < GQ; ++q) store_sum4(scores + q * score_stride, sums[q]);
  } else {
    for (int q = 0; q < GQ; ++q) {
      for (int e = 0; e < GE; ++e) scores[q * score_stride + e] = sum(sums[q][e]);
    }
  }
}

// What will be read next: the memory system is asked for it row by row while this tile is worked
// on, because blocks are too short and lie too far apart for the hardware to guess. Null: nothing.
// Past the end of a block it may name memory that is not the row's, which a hint may.
struct Ahead {
  const std::byte* rows;
  int row_bytes;

  ZIPAGE_INLINE void hint(int first_row, int num_rows) const {
    if (rows == nullptr) return;
    const std::byte* begin = rows + static_cast<ptrdiff_t>(first_row) * row_bytes;
    for (int i = 0; i < num_rows * row_bytes; i += 64) __builtin_prefetch(begin + i, 0, 3);
  }
};

template <int GQ, typename T>
void dot_rows(const float* queries,
              int padded_dim,
              const T* rows,
              int num_rows,
              int row_stride,
              const Ahead& ahead,
              float* scores,
              int score_stride) {
  int e = 0;
  for (; e + kEntryGroup <= num_rows; e += kEntryGroup) {
    ahead.hint(e, kEntryGroup);
    dot_tile<GQ, kEntryGroup>(queries, padded_dim, rows + e * row_stride, row_stride, scores + e,
                              score_stride);
  }
  for (; e < num_rows; ++e) {
    dot_tile<GQ, 1>(queries, padded_dim, rows + e * row_stride, row_stride, scores + e,
                    score_stride);
  }
}

// Calls body(integral_constant-like group size, first query) for groups that cover all queries:
// threes, and twos instead of a last one where there are enough.
template <int N>
struct Group {
  static constexpr int kSize = N;
};
template <typename Body>
ZIPAGE_INLINE void for_each_group(int num_queries, Body body) {
  int q = 0;
  while (num_queries - q >= kQueryGroup && num_queries - q != kQueryGroup + 1) {
    body(Group<kQueryGroup>(), q);
    q += kQueryGroup;
  }
  while (num_queries - q >= 2) {
    body(Group<2>(), q);
    q += 2;
  }
  if (q < num_queries) body(Group<1>(), q);
}

template <typename T>
void dot_all(const SpanTask& task,
             int begin,
             const T* rows,
             int num_rows,
             int row_stride,
             const Ahead& ahead) {
  for_each_group(task.num_queries, [&](auto group, int q) {
    dot_rows<decltype(group)::kSize>(task.queries + q * task.padded_dim, task.padded_dim, rows,
                                     num_rows, row_stride, q == 0 ? ahead : Ahead{nullptr, 0},
                                     task.scores + q * task.score_stride + begin,
                                     task.score_stride);
  });
}

// mean[q] += sum over entries of weights[q][e] * rows[e], for GC vectors of GQ queries.
template <int GQ, int GC, typename T>
ZIPAGE_INLINE void add_tile(const float* weights,
                            int weight_stride,
                            const T* rows,
                            int num_rows,
                            int row_stride,
                            const Ahead& ahead,
                            float* mean,
                            int padded_dim) {
  Vec sums[GQ][GC];
  for (int q = 0; q < GQ; ++q) {
    for (int c = 0; c < GC; ++c) sums[q][c] = load(mean + q * padded_dim + c * kWidth);
  }
  for (int e = 0; e < num_rows; ++e) {
    ahead.hint(e, 1);
    Vec weight[GQ];
    for (int q = 0; q < GQ; ++q) weight[q] = splat(weights[q * weight_stride + e]);
    for (int c = 0; c < GC; ++c) {
      const Vec value = load(rows + e * row_stride + c * kWidth);
      for (int q = 0; q < GQ; ++q) sums[q][c] = fma(weight[q], value, sums[q][c]);
    }
  }
  for (int q = 0; q < GQ; ++q) {
    for (int c = 0; c < GC; ++c) store(mean + q * padded_dim + c * kWidth, sums[q][c]);
  }
}

template <int GQ, typename T>
void add_rows(const float* weights,
              int weight_stride,
              const T* rows,
              int num_rows,
              int row_stride,
              const Ahead& ahead,
              float* mean,
              int padded_dim) {
  constexpr Ahead kNothing = {nullptr, 0};
  int d = 0;
  if (padded_dim >= kChunkGroup * kWidth) {
    add_tile<GQ, kChunkGroup>(weights, weight_stride, rows, num_rows, row_stride, ahead, mean,
                              padded_dim);
    d = kChunkGroup * kWidth;
  }
  for (; d + kChunkGroup * kWidth <= padded_dim; d += kChunkGroup * kWidth) {
    add_tile<GQ, kChunkGroup>(weights, weight_stride, rows + d, num_rows, row_stride, kNothing,
                              mean + d, padded_dim);
  }
  for (; d < padded_dim; d += kWidth) {
    add_tile<GQ, 1>(weights, weight_stride, rows + d, num_rows, row_stride, kNothing, mean + d,
                    padded_dim);
  }
}

// Rows [0, limits[q] - begin) of the tile count for query q. Queries of a group go together as far
// as all of them see, the rest of each alone: the order of a query's sum is the same.
template <int GQ, typename T>
void add_limited(const float* weights,
                 int weight_stride,
                 const int32_t* limits,
                 int begin,
                 const T* rows,
                 int num_rows,
                 int row_stride,
                 const Ahead& ahead,
                 float* mean,
                 int padded_dim) {
  int seen[GQ];
  int common = num_rows;
  for (int q = 0; q < GQ; ++q) {
    const int left = limits[q] - begin;
    seen[q] = left < 0 ? 0 : left < num_rows ? left : num_rows;
    if (seen[q] < common) common = seen[q];
  }
  if (common > 0)
    add_rows<GQ>(weights, weight_stride, rows, common, row_stride, ahead, mean, padded_dim);
  for (int q = 0; q < GQ; ++q) {
    if (seen[q] > common) {
      add_rows<1>(weights + q * weight_stride + common, weight_stride, rows + common * row_stride,
                  seen[q] - common, row_stride, Ahead{nullptr, 0}, mean + q * padded_dim,
                  padded_dim);
    }
  }
}

template <typename T>
void add_all(const SpanTask& task,
             int begin,
             const T* rows,
             int num_rows,
             int row_stride,
             const Ahead& ahead,
             float* mean) {
  for_each_group(task.num_queries, [&](auto group, int q) {
    add_limited<decltype(group)::kSize>(task.scores + q * task.score_stride + begin,
                                        task.score_stride, task.limits + q, begin, rows, num_rows,
                                        row_stride, q == 0 ? ahead : Ahead{nullptr, 0},
                                        mean + q * task.padded_dim, task.padded_dim);
  });
}

// tile[e, 0..padded_dim) = rows[e, 0..head_dim) as f32, then zeros.
template <typename T>
void widen_rows(
    const T* rows, int num_rows, int head_dim, int padded_dim, const Ahead& ahead, float* tile) {
  if (head_dim == padded_dim) {  // a multiple of kPadding: one run
    const int count = num_rows * head_dim;
    for (int e = 0; e < num_rows; ++e) ahead.hint(e, 1);
    for (int i = 0; i < count; i += kPadding) {
      for (int k = 0; k < kPadding; k += kWidth) store(tile + i + k, load(rows + i + k));
    }
    return;
  }
  const int whole = head_dim / kWidth * kWidth;
  for (int e = 0; e < num_rows; ++e) {
    ahead.hint(e, 1);
    const T* row = rows + static_cast<ptrdiff_t>(e) * head_dim;
    float* out = tile + e * padded_dim;
    int d = 0;
    for (; d < whole; d += kWidth) store(out + d, load(row + d));
    for (; d < head_dim; ++d) out[d] = widen(row[d]);
    for (; d < padded_dim; ++d) out[d] = 0.0f;
  }
}

// Scores to weights in place: max, 2^(score - max), sum. Lanes past the limit weigh nothing.
ZIPAGE_INLINE void softmax_span(float* scores, int limit, float& max_out, float& sum_out) {
  constexpr float kLowest = -__builtin_inff();
  const int whole = limit / kWidth * kWidth;
  const int rest = limit - whole;
  Vec top = splat(kLowest);
  for (int e = 0; e < whole; e += kWidth) top = max(top, load(scores + e));
  if (rest > 0) top = max(top, keep_first(load(scores + whole), rest, kLowest));
  const float highest = max_lane(top);
  const Vec shift = splat(highest);
  Vec total = zero();
  for (int e = 0; e < whole; e += kWidth) {
    const Vec weight = exp2(load(scores + e) - shift);
    store(scores + e, weight);
    total = total + weight;
  }
  if (rest > 0) {
    const Vec weight = keep_first(exp2(load(scores + whole) - shift), rest, 0.0f);
    store(scores + whole, weight);
    total = total + weight;
  }
  max_out = highest;
  sum_out = sum(total);
}

template <typename T>
ZIPAGE_INLINE const T* rows_at(const SpanTask& task, const std::byte* base, int entry) {
  const int block = entry / task.block_size;
  return reinterpret_cast<const T*>(base + task.blocks[block] * task.block_bytes) +
         static_cast<ptrdiff_t>(entry - block * task.block_size) * task.head_dim;
}

// Calls body(first entry, rows, count, stride, ahead) for runs of at most kTileEntries entries that
// lie together; rows are f32 when they pay for the widening (several groups of queries, or a
// head_dim that is no multiple of the vector). `after` is read after this.
template <typename T, typename Body>
ZIPAGE_INLINE void for_each_tile(const SpanTask& task,
                                 const std::byte* base,
                                 int num_entries,
                                 const std::byte* after,
                                 Body body) {
  const bool direct =
      task.head_dim == task.padded_dim &&
      (sizeof(T) == sizeof(float) || task.num_queries <= kDirectGroups * kQueryGroup);
  const int row_bytes = task.head_dim * static_cast<int>(sizeof(T));
  for (int begin = 0; begin < num_entries;) {
    int count = num_entries - begin;
    const int left_in_block = task.block_size - begin % task.block_size;
    if (count > left_in_block) count = left_in_block;
    if (count > kTileEntries) count = kTileEntries;
    const T* rows = rows_at<T>(task, base, begin);
    const int next = begin + kAheadEntries;
    const Ahead ahead = {
        next < num_entries ? reinterpret_cast<const std::byte*>(rows_at<T>(task, base, next))
        : after == nullptr ? nullptr
                           : after + static_cast<ptrdiff_t>(next - num_entries) * row_bytes,
        row_bytes};
    if (direct) {
      body(begin, rows, count, task.head_dim, ahead);
    } else {
      widen_rows(rows, count, task.head_dim, task.padded_dim, ahead, task.tile);
      body(begin, static_cast<const float*>(task.tile), count, task.padded_dim, Ahead{nullptr, 0});
    }
    begin += count;
  }
}

template <typename T>
void attend_typed(const SpanTask& task, const SoftmaxState& out) {
  int num_entries = 0;
  for (int q = 0; q < task.num_queries; ++q) {
    if (task.limits[q] > num_entries) num_entries = task.limits[q];
  }
  const auto* values = reinterpret_cast<const std::byte*>(rows_at<T>(task, task.v, 0));
  for_each_tile<T>(task, task.k, num_entries, values,
                   [&](int begin, const auto* rows, int count, int stride, const Ahead& ahead) {
                     dot_all(task, begin, rows, count, stride, ahead);
                   });
  for (int q = 0; q < task.num_queries; ++q) {
    softmax_span(task.scores + q * task.score_stride, task.limits[q], out.max[q], out.sum[q]);
  }
  for (int i = 0; i < task.num_queries * task.padded_dim; i += kWidth) store(out.mean + i, zero());
  for_each_tile<T>(task, task.v, num_entries, task.next_k,
                   [&](int begin, const auto* rows, int count, int stride, const Ahead& ahead) {
                     add_all(task, begin, rows, count, stride, ahead, out.mean);
                   });
}

void attend(const SpanTask& task, const SoftmaxState& out) {
  switch (task.dtype) {
    case DType::kF32:
      return attend_typed<F32>(task, out);
    case DType::kF16:
      return attend_typed<F16>(task, out);
    default:
      return attend_typed<BF16>(task, out);
  }
}

void combine(int32_t num_queries,
             int32_t padded_dim,
             const SoftmaxState& partial,
             const SoftmaxState& state) {
  for (int q = 0; q < num_queries; ++q) {
    const float highest = state.max[q] > partial.max[q] ? state.max[q] : partial.max[q];
    const Vec old_scale = exp2(splat(state.max[q] - highest));
    const Vec new_scale = exp2(splat(partial.max[q] - highest));
    state.max[q] = highest;
    float lanes[kWidth];
    store(lanes, fma(splat(partial.sum[q]), new_scale, splat(state.sum[q]) * old_scale));
    state.sum[q] = lanes[0];
    for (int d = q * padded_dim; d < (q + 1) * padded_dim; d += kWidth) {
      store(state.mean + d,
            fma(load(partial.mean + d), new_scale, load(state.mean + d) * old_scale));
    }
  }
}

void finish(const float* mean, float sum_of_weights, float scale, int32_t count, float* out) {
  const float factor = scale / sum_of_weights;
  int d = 0;
  for (; d + kWidth <= count; d += kWidth) store(out + d, load(mean + d) * splat(factor));
  for (; d < count; ++d) out[d] = mean[d] * factor;
}

void prepare_head(const HeadTask& task) {
  const int whole = task.head_dim / kWidth * kWidth;
  const float* x = task.x;
  if (task.norm != nullptr) {  // x / sqrt(mean(x^2) + eps) * weight
    Vec squares = zero();
    for (int d = 0; d < whole; d += kWidth) {
      const Vec part = load(x + d);
      squares = fma(part, part, squares);
    }
    float total = sum(squares);
    for (int d = whole; d < task.head_dim; ++d) total += x[d] * x[d];
    const float inverse =
        1.0f / __builtin_sqrtf(total / static_cast<float>(task.head_dim) + task.norm_eps);
    int d = 0;
    for (; d < whole; d += kWidth)
      store(task.out + d, load(x + d) * splat(inverse) * load(task.norm + d));
    for (; d < task.head_dim; ++d) task.out[d] = x[d] * inverse * task.norm[d];
    x = task.out;
  }
  const int half = task.cos_sin == nullptr ? 0 : task.rotary_dim / 2;
  const float* cosine = task.cos_sin;
  const float* sine = task.cos_sin + half;
  int d = 0;
  for (; d + kWidth <= half; d += kWidth) {
    const Vec a = load(x + d), b = load(x + half + d), c = load(cosine + d), s = load(sine + d);
    store(task.out + d, a * c - b * s);
    store(task.out + half + d, b * c + a * s);
  }
  for (; d < half; ++d) {
    const float a = x[d], b = x[half + d];
    task.out[d] = a * cosine[d] - b * sine[d];
    task.out[half + d] = b * cosine[d] + a * sine[d];
  }
  if (x != task.out) {
    for (d = 2 * half; d < task.head_dim; ++d) task.out[d] = x[d];
  }
}

template <typename T>
void store_typed(const float* from, int32_t count, float scale, T* to) {
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) store(to + i, load(from + i) * splat(scale));
  for (; i < count; ++i) narrow(from[i] * scale, to[i]);
}

void store_as(const float* from, int32_t count, float scale, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kF32:
      return store_typed(from, count, scale, reinterpret_cast<F32*>(to));
    case DType::kF16:
      return store_typed(from, count, scale, reinterpret_cast<F16*>(to));
    default:
      return store_typed(from, count, scale, reinterpret_cast<BF16*>(to));
  }
}

}  // namespace

namespace ZIPAGE_ISA {
extern const AttentionKernels kAttention = {attend, combine, finish, prepare_head, store_as};
}  // namespace ZIPAGE_ISA
}  // namespace zipage::cpu
