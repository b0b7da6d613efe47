// Causal attention over pages: cuts a step into work items and spreads them over the threads. See
// attention_kernels.h for the order of sums, which nothing here can change.
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/kernel_set.h"
#include "backend/cpu/runtime/memory.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage::cpu {
namespace {

// Partials of a split row are kept up to this; a step that would need more is not split further.
constexpr int64_t kMaxPartialBytes = 8 << 20;
// Work units a thread: enough to even out ragged lengths.
constexpr int64_t kUnitsPerThread = 4;
// Below this many multiply-adds waking the other threads costs more than they save.
constexpr int64_t kMinParallelWork = 1 << 16;
constexpr float kLog2E = 1.44269504088896341f;

constexpr int64_t kCacheLine = kAlignment;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Geometry {
  int32_t num_kv_heads, group_size, head_dim, block_size;
  int32_t padded_dim;
  int32_t span_blocks, span_entries, score_stride;
  int32_t heads_per_item, head_chunks, tokens_per_item;

  Geometry(int32_t num_q_heads, int32_t kv_heads, int32_t dim, int32_t block)
      : num_kv_heads(kv_heads),
        group_size(num_q_heads / kv_heads),
        head_dim(dim),
        block_size(block) {
    padded_dim = static_cast<int32_t>(round_up(head_dim, kPadding));
    span_blocks = std::max(1, kSpanEntries / block_size);
    span_entries = span_blocks * block_size;
    // Not a power of two, or the rows of scores would fall into the same sets of the cache.
    score_stride = static_cast<int32_t>(round_up(span_entries, kPadding)) + kPadding;
    head_chunks = static_cast<int32_t>(ceil_div(group_size, kMaxItemQueries));
    heads_per_item = static_cast<int32_t>(ceil_div(group_size, head_chunks));
    tokens_per_item = kMaxItemQueries / heads_per_item;
  }
  int32_t max_queries() const { return heads_per_item * tokens_per_item; }
  int32_t items_per_tile() const { return num_kv_heads * head_chunks; }
  int32_t num_spans(int32_t kv_len) const {
    return static_cast<int32_t>(ceil_div(kv_len, span_entries));
  }
  // max, sum and mean of `queries` queries.
  int64_t state_floats(int64_t queries) const {
    return 2 * round_up(queries, kPadding) + queries * padded_dim;
  }
  SoftmaxState state_at(float* base, int64_t queries) const {
    const int64_t row = round_up(queries, kPadding);
    return {base, base + row, base + 2 * row};
  }
};

// A run of tokens of one row that is worked on together, for every KV head.
struct Tile {
  int32_t row, first_token, num_tokens, num_spans;
  int32_t spans_per_unit, num_units;  // units of one item of the tile
  int64_t unit_begin;                 // of the tile's first item
  int64_t partial_begin;              // floats; -1: the tile is not split
};

struct ThreadScratch {
  float* queries;
  float* scores;
  float* tile;
  SoftmaxState state, partial;
  int32_t* limits;
};

int64_t scratch_bytes(const Geometry& g) {
  const int64_t n = g.max_queries();
  const int64_t floats = n * g.padded_dim + n * g.score_stride + kTileEntries * g.padded_dim +
                         2 * g.state_floats(n) + n;
  return round_up(floats * static_cast<int64_t>(sizeof(float)), kCacheLine);
}

ThreadScratch scratch_at(std::byte* base, const Geometry& g) {
  const int64_t n = g.max_queries();
  ThreadScratch s;
  float* next = reinterpret_cast<float*>(base);
  const auto take = [&next](int64_t floats) {
    float* taken = next;
    next += floats;
    return taken;
  };
  s.queries = take(n * g.padded_dim);
  s.scores = take(n * g.score_stride);
  s.tile = take(kTileEntries * g.padded_dim);
  s.state = g.state_at(take(g.state_floats(n)), n);
  s.partial = g.state_at(take(g.state_floats(n)), n);
  s.limits = reinterpret_cast<int32_t*>(take(n));
  return s;
}

int64_t tile_bytes(int64_t num_tokens) {
  return round_up(num_tokens * static_cast<int64_t>(sizeof(Tile)), kCacheLine);
}

class Attention {
 public:
  Attention(const PagedAttentionArgs& args, CpuContext& context)
      : args_(args),
        batch_(*args.batch),
        kv_(*args.kv),
        layer_(args.kv->layers[args.layer]),
        kernels_(kernel_set(context.isa).attention),
        pool_(*context.pool),
        g_(kv_.num_q_heads, kv_.num_kv_heads, kv_.head_dim, kv_.block_size) {
    // The workspace is aligned by hand: a Buffer promises no more than malloc.
    auto address = reinterpret_cast<uintptr_t>(args.workspace);
    auto* base = reinterpret_cast<std::byte*>(round_up(static_cast<int64_t>(address), kCacheLine));
    tiles_ = reinterpret_cast<Tile*>(base);
    scratch_ = base + tile_bytes(batch_.num_tokens);
    partials_ = reinterpret_cast<float*>(scratch_ + scratch_bytes(g_) * pool_.num_threads());
  }

  void run() {
    cut();
    if (work_ < kMinParallelWork || pool_.num_threads() == 1) {
      for (int64_t unit = 0; unit < num_units_; ++unit) run_unit(unit, 0);
    } else {
      pool_.for_each(num_units_, [&](int64_t unit, int thread) { run_unit(unit, thread); });
    }
    if (num_split_ > 0) {
      pool_.parallel_for(num_split_ * g_.items_per_tile(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) join_split(i);
      });
    }
  }

 private:
  void cut() {
    int64_t total = 0;  // span x token, over the items of all tiles
    for (int32_t row = 0; row < batch_.num_rows; ++row) {
      const int32_t begin = batch_.row_begin[row], end = batch_.row_begin[row + 1];
      if (batch_.kv_lens[row] == 0) {
        clear_output(begin, end);
        continue;
      }
      const int32_t kv_begin = batch_.kv_lens[row] - (end - begin);
      ZIPAGE_CHECK_GE(kv_begin, 0);
      for (int32_t token = begin; token < end; token += g_.tokens_per_item) {
        Tile& tile = tiles_[num_tiles_++];
        tile.row = row;
        tile.first_token = token;
        tile.num_tokens = std::min(g_.tokens_per_item, end - token);
        tile.num_spans = g_.num_spans(kv_begin + token - begin + tile.num_tokens);
        total += static_cast<int64_t>(tile.num_spans) * tile.num_tokens * g_.items_per_tile();
      }
    }
    work_ = total * std::min(g_.span_entries, std::max(batch_.max_kv_len, 1)) * g_.heads_per_item *
            g_.head_dim * 2;
    const int64_t target = total / (kUnitsPerThread * pool_.num_threads());
    int64_t partial_floats = 0;
    for (int32_t i = 0; i < num_tiles_; ++i) {
      Tile& tile = tiles_[i];
      tile.spans_per_unit = tile.num_spans;
      tile.partial_begin = -1;
      const int64_t wanted = std::max<int64_t>(1, target / tile.num_tokens);
      if (pool_.num_threads() > 1 && wanted < tile.num_spans && work_ >= kMinParallelWork) {
        const int64_t floats = tile.num_spans * g_.items_per_tile() *
                               g_.state_floats(tile.num_tokens * g_.heads_per_item);
        if ((partial_floats + floats) * static_cast<int64_t>(sizeof(float)) <= kMaxPartialBytes) {
          tile.spans_per_unit = static_cast<int32_t>(wanted);
          tile.partial_begin = partial_floats;
          partial_floats += floats;
          ++num_split_;
        }
      }
      tile.num_units = static_cast<int32_t>(ceil_div(tile.num_spans, tile.spans_per_unit));
      tile.unit_begin = num_units_;
      num_units_ += static_cast<int64_t>(tile.num_units) * g_.items_per_tile();
    }
  }

  // Of a padding row (StepBatch).
  void clear_output(int32_t begin, int32_t end) const {
    const int64_t width = int64_t{kv_.num_q_heads} * kv_.head_dim;
    float* const out = static_cast<float*>(args_.out);
    std::fill(out + begin * width, out + end * width, 0.0f);
  }

  struct Item {
    const Tile* tile;
    int32_t index;  // among the tile's items
    int32_t kv_head, first_head, num_heads, num_queries;
  };

  Item item_of(const Tile& tile, int32_t index) const {
    Item item{&tile, index, index / g_.head_chunks, 0, 0, 0};
    const int32_t chunk = index % g_.head_chunks;
    const int32_t begin = chunk * g_.heads_per_item;
    item.num_heads = std::min(g_.heads_per_item, g_.group_size - begin);
    item.first_head = item.kv_head * g_.group_size + begin;
    item.num_queries = tile.num_tokens * item.num_heads;
    return item;
  }

  SoftmaxState partial_of(const Item& item, int32_t span) const {
    const int64_t queries = item.tile->num_tokens * g_.heads_per_item;
    const int64_t place = static_cast<int64_t>(item.index) * item.tile->num_spans + span;
    return g_.state_at(partials_ + item.tile->partial_begin + place * g_.state_floats(queries),
                       queries);
  }

  // First query of the item that sees the span: tokens are in order, so all later ones see it too.
  int32_t first_seeing(const Item& item, int32_t span) const {
    const int32_t first = std::max(0, span * g_.span_entries + 1 - seen_by_first_token(item));
    return first * item.num_heads;
  }

  int32_t seen_by_first_token(const Item& item) const {
    const int32_t row = item.tile->row;
    return batch_.kv_lens[row] - (batch_.row_begin[row + 1] - item.tile->first_token) + 1;
  }

  static SoftmaxState tail(const SoftmaxState& state, int32_t first, int32_t padded_dim) {
    return {state.max + first, state.sum + first,
            state.mean + static_cast<int64_t>(first) * padded_dim};
  }

  void run_unit(int64_t unit, int thread) {
    const Tile* tile = std::upper_bound(tiles_, tiles_ + num_tiles_, unit,
                                        [](int64_t u, const Tile& t) { return u < t.unit_begin; }) -
                       1;
    const auto local = static_cast<int32_t>(unit - tile->unit_begin);
    const Item item = item_of(*tile, local / tile->num_units);
    const int32_t span_begin = local % tile->num_units * tile->spans_per_unit;
    const int32_t span_end = std::min(tile->num_spans, span_begin + tile->spans_per_unit);
    const ThreadScratch scratch = scratch_at(scratch_ + scratch_bytes(g_) * thread, g_);
    load_queries(item, scratch.queries);
    for (int32_t span = span_begin; span < span_end; ++span) {
      if (tile->partial_begin >= 0) {
        attend_span(item, span, scratch, partial_of(item, span));
      } else if (span == 0) {
        attend_span(item, span, scratch, scratch.state);
      } else {
        attend_span(item, span, scratch, scratch.partial);
        join(item, span, scratch.partial, scratch.state);
      }
    }
    if (tile->partial_begin < 0) write(item, scratch.state);
  }

  void join_split(int64_t index) {
    int64_t split = index / g_.items_per_tile();
    const Tile* tile = tiles_;
    for (;; ++tile) {
      if (tile->partial_begin >= 0 && split-- == 0) break;
    }
    const Item item = item_of(*tile, static_cast<int32_t>(index % g_.items_per_tile()));
    const SoftmaxState state = partial_of(item, 0);
    for (int32_t span = 1; span < tile->num_spans; ++span)
      join(item, span, partial_of(item, span), state);
    write(item, state);
  }

  void load_queries(const Item& item, float* queries) const {
    const auto* q = static_cast<const float*>(args_.q);
    const float scale =
        args_.scale * kLog2E * (layer_.k_scale == nullptr ? 1.0f : layer_.k_scale[item.kv_head]);
    for (int32_t i = 0; i < item.num_queries; ++i) {
      const int64_t token = item.tile->first_token + i / item.num_heads;
      const float* from =
          q + (token * kv_.num_q_heads + item.first_head + i % item.num_heads) * g_.head_dim;
      float* to = queries + static_cast<int64_t>(i) * g_.padded_dim;
      kernels_.store(from, g_.head_dim, scale, DType::kF32, reinterpret_cast<std::byte*>(to));
      std::fill(to + g_.head_dim, to + g_.padded_dim, 0.0f);
    }
  }

  void attend_span(const Item& item,
                   int32_t span,
                   const ThreadScratch& scratch,
                   const SoftmaxState& out) const {
    const int32_t first = first_seeing(item, span);
    const int32_t seen = seen_by_first_token(item) - span * g_.span_entries;
    for (int32_t i = first; i < item.num_queries; ++i) {
      scratch.limits[i] = std::min(g_.span_entries, seen + i / item.num_heads);
    }
    const int64_t head_bytes =
        dtype_bytes(kv_.dtype, static_cast<int64_t>(g_.block_size) * g_.head_dim);
    SpanTask task;
    task.dtype = kv_.dtype;
    task.k = layer_.k + item.kv_head * head_bytes;
    task.v = layer_.v + item.kv_head * head_bytes;
    task.block_bytes = head_bytes * g_.num_kv_heads;
    task.blocks = batch_.block_tables +
                  static_cast<int64_t>(item.tile->row) * batch_.block_table_stride +
                  static_cast<int64_t>(span) * g_.span_blocks;
    task.next_k = span + 1 < item.tile->num_spans
                      ? task.k + task.blocks[g_.span_blocks] * task.block_bytes
                      : nullptr;
    task.block_size = g_.block_size;
    task.head_dim = g_.head_dim;
    task.padded_dim = g_.padded_dim;
    task.num_queries = item.num_queries - first;
    task.queries = scratch.queries + static_cast<int64_t>(first) * g_.padded_dim;
    task.limits = scratch.limits + first;
    task.scores = scratch.scores;
    task.score_stride = g_.score_stride;
    task.tile = scratch.tile;
    kernels_.attend(task, tail(out, first, g_.padded_dim));
  }

  void join(const Item& item,
            int32_t span,
            const SoftmaxState& partial,
            const SoftmaxState& state) const {
    const int32_t first = first_seeing(item, span);
    kernels_.combine(item.num_queries - first, g_.padded_dim, tail(partial, first, g_.padded_dim),
                     tail(state, first, g_.padded_dim));
  }

  void write(const Item& item, const SoftmaxState& state) const {
    auto* out = static_cast<float*>(args_.out);
    const float scale = layer_.v_scale == nullptr ? 1.0f : layer_.v_scale[item.kv_head];
    for (int32_t i = 0; i < item.num_queries; ++i) {
      const int64_t token = item.tile->first_token + i / item.num_heads;
      kernels_.finish(
          state.mean + static_cast<int64_t>(i) * g_.padded_dim, state.sum[i], scale, g_.head_dim,
          out + (token * kv_.num_q_heads + item.first_head + i % item.num_heads) * g_.head_dim);
    }
  }

  const PagedAttentionArgs& args_;
  const StepBatch& batch_;
  const PagedKvView& kv_;
  const LayerKvView& layer_;
  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  const Geometry g_;
  Tile* tiles_;
  std::byte* scratch_;
  float* partials_;
  int32_t num_tiles_ = 0;
  int32_t num_split_ = 0;
  int64_t num_units_ = 0;
  int64_t work_ = 0;
};

}  // namespace

size_t attention_workspace_bytes(const Backend::Limits& limits, const CpuContext& context) {
  const Geometry g(limits.num_q_heads, limits.num_kv_heads, limits.head_dim, limits.block_size);
  const int64_t threads = context.pool->num_threads();
  // A split tile holds more than a unit's share of the work, so there are at most as many split
  // items as units.
  const int64_t split = threads > 1 ? kUnitsPerThread * threads * g.num_spans(limits.max_kv_len) *
                                          g.state_floats(g.max_queries()) *
                                          static_cast<int64_t>(sizeof(float))
                                    : 0;
  return static_cast<size_t>(tile_bytes(limits.max_tokens) + threads * scratch_bytes(g) +
                             std::min(split, kMaxPartialBytes) + kCacheLine);
}

void paged_attention(const PagedAttentionArgs& args, CpuContext& context) {
  if (args.batch->num_tokens == 0) return;
  const PagedKvView& kv = *args.kv;
  if (args.dtype != DType::kF32)
    fail_invalid("paged_attention: dtype {}: a CPU computes in f32", to_string(args.dtype));
  if (kv.dtype != DType::kF32 && kv.dtype != DType::kF16 && kv.dtype != DType::kBF16) {
    fail_invalid("paged_attention: KV dtype {}: expected f32, f16 or bf16", to_string(kv.dtype));
  }
  ZIPAGE_CHECK_EQ(kv.num_q_heads % kv.num_kv_heads, 0);
  Attention(args, context).run();
}

void attention_prepare(const AttentionPrepareArgs& args, CpuContext& context) {
  const StepBatch& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const PagedKvView& kv = *args.kv;
  if (args.dtype != DType::kF32)
    fail_invalid("attention_prepare: dtype {}: a CPU computes in f32", to_string(args.dtype));
  ZIPAGE_CHECK_LE(args.rotary_dim, kv.head_dim);
  const AttentionKernels& kernels = kernel_set(context.isa).attention;
  const LayerKvView& layer = kv.layers[args.layer];
  const int64_t dim = kv.head_dim;
  const int64_t qkv_heads = kv.num_q_heads + 2 * kv.num_kv_heads;
  const int64_t entry_bytes = dtype_bytes(kv.dtype, dim);
  const int64_t query_bytes = dtype_bytes(kv.query_dtype, dim * kv.num_q_heads);

  // qkv is not written: keys are turned in a buffer on the stack, queries in q_out.
  constexpr int64_t kMaxHeadDim = 1024;
  ZIPAGE_CHECK_LE(dim, kMaxHeadDim);
  const auto prepare_token = [&](int64_t token) {
    const float* x = static_cast<const float*>(args.qkv) + token * qkv_heads * dim;
    float* q = static_cast<float*>(args.q_out) + token * kv.num_q_heads * dim;
    const float* turn =
        args.rotary_dim == 0 || args.rope_cos_sin == nullptr
            ? nullptr
            : args.rope_cos_sin + static_cast<int64_t>(batch.positions[token]) * args.rotary_dim;
    for (int32_t h = 0; h < kv.num_q_heads; ++h) {
      kernels.prepare_head({x + h * dim, kv.head_dim, args.q_norm, args.norm_eps, turn,
                            args.rotary_dim, q + h * dim});
    }
    if (batch.query_slots != nullptr && batch.query_slots[token] >= 0 && layer.queries != nullptr) {
      kernels.store(q, kv.num_q_heads * kv.head_dim, 1.0f, kv.query_dtype,
                    layer.queries + batch.query_slots[token] * query_bytes);
    }
    // Padding: nothing is written.
    if (batch.kv_slots[token] < 0) return;
    const int64_t block = batch.kv_slots[token] / kv.block_size;
    const int64_t offset = batch.kv_slots[token] % kv.block_size;
    ZIPAGE_CHECK_LT(static_cast<uint64_t>(block), static_cast<uint64_t>(kv.num_blocks));
    float key[kMaxHeadDim];
    for (int32_t h = 0; h < kv.num_kv_heads; ++h) {
      const float* k = x + (kv.num_q_heads + h) * dim;
      const float* v = k + kv.num_kv_heads * dim;
      const int64_t entry = (block * kv.num_kv_heads + h) * kv.block_size + offset;
      kernels.prepare_head(
          {k, kv.head_dim, args.k_norm, args.norm_eps, turn, args.rotary_dim, key});
      const float k_scale = layer.k_scale == nullptr ? 1.0f : 1.0f / layer.k_scale[h];
      const float v_scale = layer.v_scale == nullptr ? 1.0f : 1.0f / layer.v_scale[h];
      kernels.store(key, kv.head_dim, k_scale, kv.dtype, layer.k + entry * entry_bytes);
      kernels.store(v, kv.head_dim, v_scale, kv.dtype, layer.v + entry * entry_bytes);
    }
  };
  constexpr int64_t kGrainElements = 16384;
  context.pool->parallel_for(batch.num_tokens,
                             std::max<int64_t>(1, kGrainElements / (qkv_heads * dim)),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t token = begin; token < end; ++token)
                                 prepare_token(token);
                             });
}

}  // namespace zipage::cpu
