// Where the entries of a job lie, and how an op's work is spread: one item a (job, layer, KV head).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/runtime/context.h"
#include "backend/kv_view.h"
#include "backend/ops/compression.h"
#include "base/error.h"

namespace zipage::cpu {

struct HeadItem {
  int32_t job;
  int32_t layer_index;  // from layer_begin
  int32_t layer;
  int32_t head;
  int64_t row;  // of score scratch: [num_jobs, num_layers, num_kv_heads]
};

// Calls body(item, thread) for every item, on whichever thread is free: results must not depend on
// it.
template <typename Body>
void for_each_head(int32_t num_jobs,
                   int32_t layer_begin,
                   int32_t num_layers,
                   int32_t num_heads,
                   CpuContext& context,
                   Body&& body) {
  const int64_t count = int64_t{num_jobs} * num_layers * num_heads;
  context.pool->for_each(count, [&](int64_t row, int thread) {
    HeadItem item;
    item.row = row;
    item.head = static_cast<int32_t>(row % num_heads);
    item.layer_index = static_cast<int32_t>(row / num_heads % num_layers);
    item.layer = layer_begin + item.layer_index;
    item.job = static_cast<int32_t>(row / num_heads / num_layers);
    body(item, thread);
  });
}

template <typename Body>
void for_each_head(const CompressionOpArgs& args, CpuContext& context, Body&& body) {
  for_each_head(args.batch->num_jobs, args.layer_begin, args.num_layers, args.kv->num_kv_heads,
                context, body);
}

inline int64_t element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

inline void require_plain_kv(DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    fail(StatusCode::kUnimplemented, "compression of a {} KV cache on a CPU: f32, f16 or bf16",
         to_string(dtype));
  }
}

// The keys of one request, layer and KV head.
struct KeyPages {
  const std::byte* k;    // of the layer
  const int32_t* table;  // blocks
  int64_t block_stride;  // bytes from block to block
  int64_t head_offset;   // bytes from a block's begin to the head's run
  int64_t entry_bytes;
  int32_t block_size;
  float scale;  // of the keys

  KeyPages(const PagedKvView& kv, const int32_t* block_table, const HeadItem& item)
      : k(kv.layers[item.layer].k),
        table(block_table),
        entry_bytes(kv.head_dim * element_bytes(kv.dtype)),
        block_size(kv.block_size),
        scale(kv.layers[item.layer].k_scale == nullptr ? 1.0f
                                                       : kv.layers[item.layer].k_scale[item.head]) {
    const int64_t head_bytes = entry_bytes * block_size;
    block_stride = head_bytes * kv.num_kv_heads;
    head_offset = head_bytes * item.head;
  }
  const std::byte* entry(int32_t index) const {
    return k + table[index / block_size] * block_stride + head_offset +
           index % block_size * entry_bytes;
  }
};

// Row of F or of positions of a slot and head.
inline int64_t slot_row(const PagedKvView& kv, int32_t slot, int32_t head) {
  return (int64_t{slot} * kv.num_kv_heads + head) * kv.score_capacity;
}

// Positions of a job's entries (CompressionBatch): stored ones up to history, slot index + offset
// from there on.
struct EntryPositions {
  const int32_t* stored;
  int32_t history;
  int32_t offset;

  EntryPositions(const CompressionBatch& batch, const PagedKvView& kv, const HeadItem& item)
      : stored(nullptr),
        history(batch.histories[item.job]),
        offset(batch.position_offsets[item.job]) {
    const int32_t* positions = kv.layers[item.layer].positions;
    if (positions != nullptr) stored = positions + slot_row(kv, batch.slots[item.job], item.head);
  }
  int32_t operator[](int32_t index) const {
    return index < history ? stored[index] : index + offset;
  }
};

// x = softmax(x * factor), n entries; sums in index order.
void softmax_row(float* x, int32_t n, float factor);

// Floats of workspace one thread needs, and where a thread's part begins.
struct WorkspaceShape {
  int64_t num_queries;  // window
  int64_t group;        // query heads a KV head
  int64_t head_dim;
  int64_t max_length;  // entries
};
int64_t window_workspace_floats(const WorkspaceShape& shape);      // attention_score, peak_update
int64_t redundancy_workspace_floats(const WorkspaceShape& shape);  // redundancy
int64_t center_workspace_floats(const WorkspaceShape& shape);      // center_redundancy

}  // namespace zipage::cpu
