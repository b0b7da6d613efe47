// What both kernels of the window's attention read: attention_score.cu for every device and shape,
// attention_cluster.cu for Hopper.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_context.h"
#include "backend/kv_view.h"

namespace zipage::compression {

struct AttentionInput {
  const int32_t* slots;
  const int32_t* lengths;
  const int32_t* previous;  // [U] or null: no update of F
  const int32_t* block_tables;
  int32_t table_stride;
  float scale;
  float inverse_half_life;  // 1/H; peak only
  bool peak;
  float* out;     // scratch rows, or null: F of the layers
  int32_t group;  // query heads per KV head
};

struct AttentionRange {
  int32_t count;  // jobs or updates
  int32_t layer_begin;
  int32_t num_layers;
  int32_t capacity;
};

// False where the device or the shape is not for this kernel; nothing has been enqueued then.
bool launch_attention_cluster(const AttentionInput& input,
                              const PagedKvView& kv,
                              const AttentionRange& range,
                              const CudaContext& context,
                              cudaStream_t stream);

}  // namespace zipage::compression
