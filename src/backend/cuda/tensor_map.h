// Tensor maps: how TMA of Hopper sees a matrix in memory.
#pragma once

#include <cstdint>
#include <cuda.h>

#include "backend/cuda/cuda_context.h"
#include "backend/kv_view.h"

namespace zipage {

// [rows, columns] bf16, row-major; boxes of box_rows x 64 columns, swizzled over 128 bytes. Reads
// past the end give 0.
CUtensorMap make_matrix_map(const CudaContext& context,
                            const void* data,
                            uint64_t rows,
                            uint64_t columns,
                            uint32_t box_rows);
// Whether make_page_map can describe this KV: the machine has TMA, and an entry's row
// is an int32, as TMA addresses it.
bool page_map_fits(const CudaContext& context, const PagedKvView& kv);
// A layer's keys or values, [num_blocks * num_kv_heads * block_size, head_dim] bf16; boxes of
// box_entries x head_dim that land as chunks [box_entries, chunk_columns], swizzled over the
// chunk's width (16, 32 or 64 columns).
CUtensorMap make_page_map(const CudaContext& context,
                          const PagedKvView& kv,
                          const void* data,
                          uint32_t chunk_columns,
                          uint32_t box_entries);

}  // namespace zipage
