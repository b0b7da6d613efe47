#include <algorithm>

#include "backend/cpu/compression/layout.h"
#include "backend/cpu/ops.h"

namespace zipage::cpu {

// One part a thread: an op's items share nothing. Independent of the number of jobs and layers.
size_t compression_workspace_bytes(const Backend::Limits& limits,
                                   const CompressionOptions&,
                                   const CpuContext& context) {
  const WorkspaceShape shape{limits.window_size, limits.num_q_heads / limits.num_kv_heads,
                             limits.head_dim, std::max(limits.score_capacity, limits.max_kv_len)};
  const int64_t floats =
      std::max({window_workspace_floats(shape), redundancy_workspace_floats(shape),
                center_workspace_floats(shape)});
  return static_cast<size_t>(floats * context.pool->num_threads()) * sizeof(float);
}

}  // namespace zipage::cpu
