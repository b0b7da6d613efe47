#include "compress/scratch_plan.h"

#include <algorithm>

#include "base/check.h"
#include "compress/job_tables.h"
#include "compress/score_ops.h"

namespace zipage {

ScratchPlan make_scratch_plan(const Backend& backend,
                              const CompressionModel& model,
                              const CompressionOptions& options,
                              const CompressorLimits& limits) {
  ZIPAGE_CHECK_GE(limits.max_blocks_per_seq, 2);
  ZIPAGE_CHECK(limits.block_size > 0 && limits.max_model_len > 0);
  ZIPAGE_CHECK(limits.max_batch_jobs > 0 && limits.max_launch_jobs > 0);
  ZIPAGE_CHECK_GE(options.layer_stride, 1);
  const int64_t b = limits.block_size;
  const int64_t capacity = limits.max_blocks_per_seq * b;  // N_max * b: of a job that has decoded
  const int64_t long_blocks = (limits.max_model_len + b - 1) / b;
  const auto heads = static_cast<int64_t>(model.num_kv_heads);

  ScratchPlan plan;
  plan.layers = std::min(options.layer_stride, model.num_layers);
  plan.max_keep = static_cast<int32_t>(capacity - b);
  plan.num_rows = kNumScoreRows;
  const int64_t jobs = limits.max_batch_jobs;
  const int64_t regular = jobs * plan.layers * heads * capacity;
  // A job that is longer, once in its life, takes fewer layers at a time rather than more memory.
  plan.long_capacity = static_cast<int32_t>(std::max(long_blocks * b, capacity));
  plan.long_layers = static_cast<int32_t>(
      std::clamp<int64_t>(regular / (heads * plan.long_capacity), 1, plan.layers));
  plan.row_floats =
      static_cast<size_t>(std::max(regular, plan.long_layers * heads * plan.long_capacity));
  plan.kept_slots = static_cast<size_t>(jobs * plan.layers * heads * plan.max_keep);

  Backend::Limits shape{};
  shape.num_q_heads = model.num_q_heads;
  shape.num_kv_heads = model.num_kv_heads;
  shape.head_dim = model.head_dim;
  shape.block_size = limits.block_size;
  shape.window_size = options.window_size;
  shape.max_jobs = limits.max_launch_jobs;
  shape.layer_stride = model.num_layers;
  shape.score_capacity = shape.max_kv_len = static_cast<int32_t>(capacity);
  plan.peak_workspace_bytes = backend.compression_workspace_bytes(shape, options);
  shape.max_jobs = limits.max_batch_jobs;
  shape.layer_stride = plan.layers;
  plan.workspace_bytes = backend.compression_workspace_bytes(shape, options);
  shape.max_jobs = 1;
  shape.layer_stride = plan.long_layers;
  shape.score_capacity = shape.max_kv_len = plan.long_capacity;
  plan.workspace_bytes =
      std::max(plan.workspace_bytes, backend.compression_workspace_bytes(shape, options));
  plan.table_bytes = JobTables::bytes(limits.max_launch_jobs,
                                      std::max<int64_t>(long_blocks, limits.max_blocks_per_seq));
  return plan;
}

}  // namespace zipage
