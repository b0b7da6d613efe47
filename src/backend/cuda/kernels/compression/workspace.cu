// What the compression kernels need as workspace, whatever the batch: larger batches run in several
// launches.
#include <algorithm>

#include "backend/cuda/kernels/compression/compression.h"
#include "backend/cuda/kernels/compression/limits.h"
#include "backend/cuda/kernels/compression/workspace.h"

namespace zipage {

size_t compression_kernel_workspace_bytes(const Backend::Limits& limits,
                                          const CompressionOptions&,
                                          const CudaContext&) {
  const int length = std::max({limits.max_kv_len, limits.score_capacity, 1});
  const int group = std::max(limits.num_q_heads / std::max(limits.num_kv_heads, 1), 1);
  const size_t unit = std::max(
      {compression::attention_unit_bytes(length, group, limits.head_dim, limits.window_size),
       compression::center_unit_bytes(length, limits.head_dim),
       compression::redundancy_unit_bytes(length)});
  // A launch covers at least the heads of one job and layer.
  return compression::kAlignmentBytes +
         std::max(compression::kPartialBytes, unit * static_cast<size_t>(limits.num_kv_heads));
}

}  // namespace zipage
