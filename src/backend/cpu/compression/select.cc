// Top-k with ties to the lower slot, and compaction (method.md 3.1.7, 3.1.8; Alg. 4).
#include <algorithm>
#include <cstring>

#include "backend/cpu/compression/layout.h"
#include "backend/cpu/ops.h"

namespace zipage::cpu {
namespace {

constexpr int kDigits = 2048;  // 11 bits of a score at one time
constexpr int kDigitBits = 11;

// Unsigned integers in the order of the scores: NaN as -inf, -0 as +0.
uint32_t sort_key(float score) {
  if (score != score) score = -__builtin_inff();
  score += 0.0f;  // -0 + 0 = +0
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// kept = slots of the k largest of n scores. Radix select: from the highest digit on, the digit
// that holds the k-th largest.
void select(const float* score, int32_t n, int32_t k, int32_t* kept) {
  uint32_t threshold = 0;
  uint32_t known = 0;  // mask of the digits of `threshold` found so far
  int32_t wanted = k;  // of the scores whose known digits equal the threshold's
  for (int shift : {21, 10, 0}) {
    const int bits = shift == 0 ? 10 : kDigitBits;
    const uint32_t digit_mask = (1u << bits) - 1;
    int32_t counts[kDigits] = {};
    for (int32_t i = 0; i < n; ++i) {
      const uint32_t key = sort_key(score[i]);
      if ((key & known) == threshold) ++counts[(key >> shift) & digit_mask];
    }
    uint32_t digit = digit_mask;
    while (digit > 0 && counts[digit] < wanted) wanted -= counts[digit--];
    threshold |= digit << shift;
    known |= digit_mask << shift;
  }
  for (int32_t i = 0; i < n && k > 0; ++i) {
    const uint32_t key = sort_key(score[i]);
    if (key < threshold || (key == threshold && wanted-- <= 0)) continue;
    *kept++ = i;
    --k;
  }
}

// Rows [0, k) of the targets = rows kept[0..k) of the sources, in ascending order. Runs that stay
// together move at once.
void move_rows(std::byte* pages,
               int64_t block_stride,
               int64_t head_offset,
               int64_t entry_bytes,
               int32_t block_size,
               const int32_t* source,
               const int32_t* target,
               const int32_t* kept,
               int32_t k) {
  for (int32_t i = 0; i < k;) {
    const int32_t from = kept[i];
    const int32_t most =
        std::min({k - i, block_size - i % block_size, block_size - from % block_size});
    int32_t run = 1;
    while (run < most && kept[i + run] == from + run) ++run;
    std::byte* to_at =
        pages + target[i / block_size] * block_stride + head_offset + i % block_size * entry_bytes;
    const std::byte* from_at = pages + source[from / block_size] * block_stride + head_offset +
                               from % block_size * entry_bytes;
    if (to_at != from_at) std::memmove(to_at, from_at, static_cast<size_t>(run * entry_bytes));
    i += run;
  }
}

}  // namespace

void top_k(const TopKArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const int32_t n = batch.lengths[item.job];
    const int32_t k = batch.keeps[item.job];
    if (k > n || k > args.kept_stride) {
      fail_invalid("top_k: keep {} of {} entries, room for {}", k, n, args.kept_stride);
    }
    select(args.score + item.row * args.capacity, n, k, args.kept + item.row * args.kept_stride);
  });
}

void compact(const CompactArgs& args, CpuContext& context) {
  const CompressionBatch& batch = *args.batch;
  const PagedKvView& kv = *args.kv;
  const int64_t entry_bytes = dtype_bytes(kv.dtype, kv.head_dim);
  const int64_t head_bytes = entry_bytes * kv.block_size;
  for_each_head(args, context, [&](const HeadItem& item, int) {
    const LayerKvView& layer = kv.layers[item.layer];
    const int32_t k = batch.keeps[item.job];
    const int32_t* kept = args.kept + item.row * args.kept_stride;
    const int32_t* source = batch.block_tables + int64_t{item.job} * batch.block_table_stride;
    const int32_t* target = batch.target_tables + int64_t{item.job} * batch.block_table_stride;
    for (std::byte* pages : {layer.k, layer.v}) {
      move_rows(pages, head_bytes * kv.num_kv_heads, head_bytes * item.head, entry_bytes,
                kv.block_size, source, target, kept, k);
    }
    const int64_t row = slot_row(kv, batch.slots[item.job], item.head);
    if (layer.scores != nullptr) {  // ascending: kept[i] >= i
      float* f = layer.scores + row;
      const float* from = args.history != nullptr ? args.history + item.row * args.capacity : f;
      const int32_t known = args.history != nullptr ? batch.lengths[item.job] : kv.score_capacity;
      for (int32_t i = 0; i < k; ++i) f[i] = kept[i] < known ? from[kept[i]] : 0.0f;
    }
    if (layer.positions != nullptr) {
      int32_t* positions = layer.positions + row;
      const EntryPositions old(batch, kv, item);
      for (int32_t i = 0; i < k; ++i) positions[i] = old[kept[i]];
    }
  });
}

}  // namespace zipage::cpu
