#include "compress/trace_recorder.h"

namespace zipage {

TraceRecorder::TraceRecorder(Backend& backend, const PagedKvView& kv, const ScratchPlan& plan)
    : backend_(backend),
      kv_(kv),
      score_(backend.allocate(plan.row_floats * sizeof(float), MemorySpace::kHost)),
      kept_(backend.allocate(plan.kept_bytes(), MemorySpace::kHost)),
      positions_(backend.allocate(static_cast<size_t>(kv.num_kv_heads) *
                                      static_cast<size_t>(kv.score_capacity) * sizeof(int32_t),
                                  MemorySpace::kHost)) {}

size_t TraceRecorder::host_bytes(const ScratchPlan& plan, const CompressionModel& model) {
  const size_t capacity =
      static_cast<size_t>(plan.max_keep) * 2;  // N_max * b <= 2 * (N_max - 1) * b
  return plan.row_floats * sizeof(float) + plan.kept_bytes() +
         static_cast<size_t>(model.num_kv_heads) * capacity * sizeof(int32_t);
}

void TraceRecorder::record(std::span<const CompressJob> jobs,
                           const CompressionOpArgs& ops,
                           const float* score,
                           const int32_t* kept,
                           Stream& stream) {
  if (sink_ == nullptr || !sink_->is_open()) return;
  const auto heads = static_cast<size_t>(kv_.num_kv_heads);
  const auto capacity = static_cast<size_t>(ops.capacity);
  const auto stride = static_cast<size_t>(ops.batch->max_keep);
  const size_t rows = jobs.size() * static_cast<size_t>(ops.num_layers) * heads;
  backend_.copy(score_.data(), score, rows * capacity * sizeof(float), stream);
  backend_.copy(kept_.data(), kept, rows * stride * sizeof(int32_t), stream);
  size_t row = 0;
  for (const CompressJob& job : jobs) {
    record_.sequence = job.sequence;
    record_.job_id = job.job_id;
    record_.policy = job.policy;
    record_.num_heads = kv_.num_kv_heads;
    record_.length = job.length;
    record_.keep = job.keep;
    record_.history = job.history;
    record_.prompt_length = job.prompt_length;
    record_.tokens = job.length + job.position_offset;
    const auto slot_entries = heads * static_cast<size_t>(kv_.score_capacity);
    for (int32_t l = 0; l < ops.num_layers; ++l) {
      record_.layer = ops.layer_begin + l;
      record_.positions.clear();
      record_.scores.clear();
      const int32_t* positions = kv_.layers[record_.layer].positions;
      backend_.copy(positions_.data(),
                    positions + static_cast<size_t>(job.slot.value()) * slot_entries,
                    slot_entries * sizeof(int32_t), stream);
      backend_.synchronize(stream);
      for (size_t head = 0; head < heads; ++head, ++row) {
        const int32_t* kept_row = kept_.as<int32_t>() + row * stride;
        const float* score_row = score_.as<float>() + row * capacity;
        const int32_t* position_row =
            positions_.as<int32_t>() + head * static_cast<size_t>(kv_.score_capacity);
        for (int32_t i = 0; i < job.keep; ++i) {
          record_.positions.push_back(position_row[i]);
          record_.scores.push_back(score_row[kept_row[i]]);
        }
      }
      sink_->take(record_);
    }
  }
}

}  // namespace zipage
