// Redundancy by pairs (method.md 3.1.4; Alg. 3 without ever storing the matrix) and by the centre
// (method.md 3.2).
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/compression/compression_kernels.h"
#include "backend/cpu/compression/layout.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/kernel_set.h"

namespace zipage::cpu {
namespace {

constexpr float kNoPair = -std::numeric_limits<float>::infinity();
constexpr int32_t kRowsAtOnce = 128;  // of the similarity matrix

// Keys as unit vectors, turned back by their positions where a table is given.
class UnitKeys {
 public:
  UnitKeys(const CompressionKernels& kernels,
           const PagedKvView& kv,
           const int32_t* table,
           const HeadItem& item,
           const EntryPositions& positions,
           const float* cos_sin,
           int32_t rotary_dim)
      : kernels_(kernels),
        dtype_(kv.dtype),
        head_dim_(kv.head_dim),
        keys_(kv, table, item),
        positions_(positions),
        cos_sin_(cos_sin),
        rotary_dim_(rotary_dim) {}

  // The turned key; returns the factor that makes it a unit vector.
  float turned(int32_t index, float* out) const {
    kernels_.load(keys_.entry(index), dtype_, head_dim_, keys_.scale, out);
    if (cos_sin_ != nullptr) {
      kernels_.derotate(out, cos_sin_ + int64_t{positions_[index]} * rotary_dim_, rotary_dim_ / 2);
    }
    return 1.0f / std::max(std::sqrt(kernels_.dot(out, out, head_dim_)), 1e-6f);
  }
  // Entries [begin, end) as rows of out.
  void units(int32_t begin, int32_t end, float* out) const {
    for (int32_t i = begin; i < end; ++i, out += head_dim_) {
      const float factor = turned(i, out);
      for (int32_t j = 0; j < head_dim_; ++j) out[j] *= factor;
    }
  }

 private:
  const CompressionKernels& kernels_;
  const DType dtype_;
  const int32_t head_dim_;
  const KeyPages keys_;
  const EntryPositions positions_;
  const float* cos_sin_;
  const int32_t rotary_dim_;
};

struct PairScratch {
  float* rows;          // [kRowsAtOnce, head_dim]
  float* columns;       // [kTile, head_dim]
  float* tile;          // [head_dim, kTile]
  float* similarities;  // [kRowsAtOnce, kTile]
  float* tags;          // [columns rounded to tiles]
  PairScratch(float* workspace, int64_t d)
      : rows(workspace),
        columns(rows + kRowsAtOnce * d),
        tile(columns + kTile * d),
        similarities(tile + kTile * d),
        tags(similarities + kRowsAtOnce * kTile) {}
};

// sums[i] += the similarities of row i with the columns of entries [begin, end), after the
// threshold rule.
void add_pairs(const CompressionKernels& kernels,
               const UnitKeys& keys,
               int32_t d,
               int32_t begin,
               int32_t end,
               float threshold,
               const PairScratch& scratch,
               float* sums) {
  const int32_t span = end - begin;
  std::fill(scratch.tags, scratch.tags + round_to_tile(span), 0.0f);
  // Newest rows first, so that a column's tag is set by the last row above the threshold.
  const int32_t num_chunks = (span + kRowsAtOnce - 1) / kRowsAtOnce;
  for (int32_t chunk = num_chunks - 1; chunk >= 0; --chunk) {
    const int32_t row_begin = begin + chunk * kRowsAtOnce;
    const int32_t rows = std::min(kRowsAtOnce, end - row_begin);
    keys.units(row_begin, row_begin + rows, scratch.rows);
    for (int32_t column = begin; column < end; column += kTile) {
      const int32_t count = std::min(kTile, end - column);
      keys.units(column, column + count, scratch.columns);
      kernels.pack_tile(reinterpret_cast<const std::byte*>(scratch.columns), DType::kF32, count, d,
                        1.0f, scratch.tile);
      kernels.dot_tile(scratch.rows, rows, d, scratch.tile, scratch.similarities, kTile);
      for (int32_t c = 0; c < count; ++c) {
        // The diagonal counts as 0, whatever the threshold.
        const int32_t r = column + c - row_begin;
        if (r >= 0 && r < rows) scratch.similarities[r * kTile + c] = kNoPair;
      }
      kernels.sweep(scratch.similarities, rows, threshold, scratch.tags + (column - begin),
                    sums + row_begin);
    }
  }
}

}  // namespace

int64_t redundancy_workspace_floats(const WorkspaceShape& s) {
  return (kRowsAtOnce + 2 * kTile) * s.head_dim + kRowsAtOnce * kTile + round_to_tile(s.max_length);
}

int64_t center_workspace_floats(const WorkspaceShape& s) { return 3 * s.head_dim; }

void softmax_row(float* x, int32_t n, float factor) {
  float top = -std::numeric_limits<float>::infinity();
  for (int32_t i = 0; i < n; ++i) top = std::max(top, x[i]);
  float sum = 0;
  for (int32_t i = 0; i < n; ++i) {
    x[i] = std::exp((x[i] - top) * factor);
    sum += x[i];
  }
  const float inverse = 1.0f / sum;
  for (int32_t i = 0; i < n; ++i) x[i] *= inverse;
}

void redundancy(const RedundancyArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_jobs == 0) return;
  require_plain_kv(kv.dtype);
  const CompressionKernels& kernels = kernel_set(context.isa).compression;
  const int64_t stride = redundancy_workspace_floats({0, 0, kv.head_dim, batch.max_length});
  for_each_head(args, context, [&](const HeadItem& item, int thread) {
    const int32_t n = batch.lengths[item.job];
    const int32_t* table = batch.block_tables + int64_t{item.job} * batch.block_table_stride;
    const UnitKeys keys(kernels, kv, table, item, EntryPositions(batch, kv, item),
                        args.derotate ? args.rope_cos_sin : nullptr, args.rotary_dim);
    const PairScratch scratch(args.workspace + thread * stride, kv.head_dim);
    float* out = args.out + item.row * args.capacity;
    std::fill(out, out + n, 0.0f);
    const int32_t span = args.mode == Redundancy::kLightning ? kv.block_size : n;
    for (int32_t begin = 0; begin < n; begin += span) {
      add_pairs(kernels, keys, kv.head_dim, begin, std::min(begin + span, n),
                args.similarity_threshold, scratch, out);
    }
    softmax_row(out, n, 1.0f / (static_cast<float>(span) * args.temperature));
  });
}

void center_redundancy(const CenterRedundancyArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  if (batch.num_jobs == 0) return;
  require_plain_kv(kv.dtype);
  const CompressionKernels& kernels = kernel_set(context.isa).compression;
  const int32_t d = kv.head_dim;
  const int64_t stride = center_workspace_floats({0, 0, d, 0});
  for_each_head(args, context, [&](const HeadItem& item, int thread) {
    const int32_t n = batch.lengths[item.job];
    const int32_t* table = batch.block_tables + int64_t{item.job} * batch.block_table_stride;
    const UnitKeys keys(kernels, kv, table, item, EntryPositions(batch, kv, item),
                        args.rope_cos_sin, args.rotary_dim);
    float* key = args.workspace + thread * stride;
    float* block_sum = key + d;
    float* mean = block_sum + d;
    float* out = args.out + item.row * args.capacity;
    std::fill(mean, mean + d, 0.0f);
    for (int32_t begin = 0; begin < n; begin += kv.block_size) {  // per block, blocks ascending
      std::fill(block_sum, block_sum + d, 0.0f);
      for (int32_t i = begin; i < std::min(begin + kv.block_size, n); ++i) {
        const float factor = keys.turned(i, key);
        kernels.axpy(factor, key, block_sum, d);
      }
      for (int32_t j = 0; j < d; ++j) mean[j] += block_sum[j];
    }
    const float inverse = 1.0f / static_cast<float>(n);
    for (int32_t j = 0; j < d; ++j) mean[j] *= inverse;
    for (int32_t i = 0; i < n; ++i) {
      const float factor = keys.turned(i, key);
      out[i] = factor * kernels.dot(key, mean, d);
    }
    softmax_row(out, n, 1.0f / args.temperature);
  });
}

}  // namespace zipage::cpu
