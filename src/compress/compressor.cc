#include "compress/compressor.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "compress/job_tables.h"
#include "compress/policies.h"
#include "compress/scratch_plan.h"
#include "compress/table_uploader.h"
#include "compress/trace_recorder.h"
#include "kvcache/memory_plan.h"

namespace zipage {
namespace {

// The seed of policy `random`: drawn anew at each compression, the same whatever runs beside it.
uint64_t job_seed(uint64_t seed, const CompressJob& job) {
  uint64_t x = seed + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(job.position_offset) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Result<CompressionOptions> options_of(CompressionOptions options,
                                      KvPolicy policy,
                                      const CompressorLimits& limits) {
  options.kv_policy = policy;
  options.kv_budget = int64_t{limits.max_blocks_per_seq - 1} * limits.block_size;
  return options.resolved(limits.block_size);
}

}  // namespace

struct Compressor::State {
  State(Backend& the_backend,
        const PagedKvView& the_kv,
        const CompressionModel& the_model,
        const CompressionOptions& the_options,
        const CompressorLimits& the_limits);

  Status can_run(KvPolicy policy) const;
  Status check_job(const CompressJob& job) const;
  bool is_long(const CompressJob& job) const { return job.length > kv.score_capacity; }
  bool has_f(const CompressJob& job) const;
  // Jobs may share ops when these are equal.
  auto group_of(const CompressJob& job) const {
    return std::tuple(job.policy, is_long(job), !has_f(job));
  }
  PlannedBatch start_batch(CompressJob job, Status status) const;
  void upload_tables(std::span<PlannedBatch> batches, Stream& stream);

  Backend& backend;
  const PagedKvView kv;
  const CompressionModel model;
  const CompressionOptions options;
  const CompressorLimits limits;
  const ScratchPlan scratch_plan;
  // By policy; an error says why the options do not suit it.
  std::vector<Result<CompressionOptions>> policy_options;
  Buffer rows, kept, workspace, peak_workspace;
  ScoreScratch scratch;
  TableUploader job_uploader, peak_uploader;
  std::unique_ptr<TraceRecorder> trace;

  // Of the latest plan().
  uint64_t plan_id = 0;
  JobTables tables{0, 1};
  const std::byte* device_tables = nullptr;
};

Compressor::State::State(Backend& the_backend,
                         const PagedKvView& the_kv,
                         const CompressionModel& the_model,
                         const CompressionOptions& the_options,
                         const CompressorLimits& the_limits)
    : backend(the_backend),
      kv(the_kv),
      model(the_model),
      options(the_options),
      limits(the_limits),
      scratch_plan(make_scratch_plan(the_backend, the_model, the_options, the_limits)),
      rows(backend.allocate(scratch_plan.rows_bytes(), MemorySpace::kDevice)),
      kept(backend.allocate(scratch_plan.kept_bytes(), MemorySpace::kDevice)),
      workspace(backend.allocate(scratch_plan.workspace_bytes, MemorySpace::kDevice)),
      peak_workspace(backend.allocate(scratch_plan.peak_workspace_bytes, MemorySpace::kDevice)),
      job_uploader(backend, scratch_plan.table_bytes),
      peak_uploader(backend, scratch_plan.table_bytes) {
  ZIPAGE_CHECK_EQ(kv.num_layers, model.num_layers);
  ZIPAGE_CHECK_EQ(kv.num_kv_heads, model.num_kv_heads);
  ZIPAGE_CHECK_EQ(kv.num_q_heads, model.num_q_heads);
  ZIPAGE_CHECK_EQ(kv.head_dim, model.head_dim);
  ZIPAGE_CHECK_EQ(kv.block_size, limits.block_size);
  ZIPAGE_CHECK_EQ(kv.score_capacity, limits.max_blocks_per_seq * limits.block_size);
  if (kv.window_size != options.window_size) {
    fail_invalid("--window-size {}: the KV cache was planned for {}", options.window_size,
                 kv.window_size);
  }
  for (const KvPolicyTraits& policy : kKvPolicies) {
    policy_options.push_back(options_of(options, policy.policy, limits));
  }
  const Status own = policy_options[static_cast<size_t>(options.kv_policy)].status();
  if (!own.ok()) throw Error(own.code(), own.message());
  scratch.workspace = workspace.as<float>();
  for (size_t i = 0; i < scratch.rows.size(); ++i) {
    scratch.rows[i] = rows.as<float>() + i * scratch_plan.row_floats;
  }
  if (limits.trace) trace = std::make_unique<TraceRecorder>(backend, kv, scratch_plan);
}

Status Compressor::State::can_run(KvPolicy policy) const {
  const auto& resolved = policy_options[static_cast<size_t>(policy)];
  if (!resolved.ok()) return resolved.status();
  const LayerKvView& layer = kv.layers[0];
  const SlotContents planned{.queries = layer.queries != nullptr,
                             .scores = layer.scores != nullptr,
                             .positions = layer.positions != nullptr};
  if (planned.has(slot_contents(resolved.value()))) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("kv_policy {} of a request: the KV cache was planned without the "
                            "memory it needs",
                            to_string(policy)));
}

Status Compressor::State::check_job(const CompressJob& job) const {
  if (Status status = can_run(job.policy); !status.ok()) return status;
  try {
    ZIPAGE_CHECK(job.slot.valid() && job.slot.value() < kv.num_slots);
    ZIPAGE_CHECK(job.keep > 0 && job.keep <= job.length && job.keep <= scratch_plan.max_keep);
    ZIPAGE_CHECK(job.history >= 0 && job.history <= job.length);
    ZIPAGE_CHECK_LE(job.history, kv.score_capacity);
    ZIPAGE_CHECK_LE(job.length, std::max(scratch_plan.long_capacity, kv.score_capacity));
    ZIPAGE_CHECK_GE(static_cast<int64_t>(job.source.size()) * kv.block_size, job.length);
    ZIPAGE_CHECK_GE(static_cast<int64_t>(job.target.size()) * kv.block_size, job.keep);
  } catch (...) {
    return current_exception_status();
  }
  return Status();
}

// method.md 3.2: a prompt longer than N_max * b has no F before its first compression.
bool Compressor::State::has_f(const CompressJob& job) const {
  return !traits_of(job.policy).updates_f || job.history > 0 ||
         job.length <= job.max_blocks * kv.block_size;
}

PlannedBatch Compressor::State::start_batch(CompressJob job, Status status) const {
  PlannedBatch batch;
  batch.status = std::move(status);
  batch.is_long = is_long(job);
  batch.has_f = has_f(job);
  batch.plan = plan_id;
  batch.jobs.push_back(std::move(job));
  return batch;
}

void Compressor::State::upload_tables(std::span<PlannedBatch> batches, Stream& stream) {
  int32_t num_jobs = 0;
  size_t stride = 1;
  for (const PlannedBatch& batch : batches) {
    num_jobs += static_cast<int32_t>(batch.jobs.size());
    for (const CompressJob& job : batch.jobs)
      stride = std::max({stride, job.source.size(), job.target.size()});
  }
  tables = JobTables(num_jobs, static_cast<int32_t>(stride));
  ZIPAGE_CHECK_LE(tables.bytes(), scratch_plan.table_bytes);
  std::byte* host = job_uploader.acquire();
  int32_t row = 0;
  for (PlannedBatch& batch : batches) {
    batch.first_row = row;
    for (const CompressJob& job : batch.jobs)
      tables.set(host, row++, job, job_seed(options.random_seed, job));
  }
  device_tables = job_uploader.upload(tables.bytes(), stream);
}

Compressor::Compressor(Backend& backend,
                       const PagedKvView& kv,
                       const CompressionModel& model,
                       const CompressionOptions& options,
                       const CompressorLimits& limits)
    : state_(std::make_unique<State>(backend, kv, model, options, limits)) {}

Compressor::~Compressor() = default;

CompressorMemory Compressor::memory(const Backend& backend,
                                    const CompressionModel& model,
                                    const CompressionOptions& options,
                                    const CompressorLimits& limits) {
  const ScratchPlan plan = make_scratch_plan(backend, model, options, limits);
  CompressorMemory memory;
  memory.device_bytes = plan.rows_bytes() + plan.kept_bytes() + plan.workspace_bytes +
                        plan.peak_workspace_bytes + 2 * plan.table_bytes;
  memory.host_bytes = 2 * TableUploader::host_bytes(plan.table_bytes);
  if (limits.trace) memory.host_bytes += TraceRecorder::host_bytes(plan, model);
  return memory;
}

Status Compressor::can_run(KvPolicy policy) const { return state_->can_run(policy); }

std::vector<PlannedBatch> Compressor::plan(std::vector<CompressJob> jobs, Stream& stream) {
  State& s = *state_;
  ZIPAGE_CHECK_LE(jobs.size(), static_cast<size_t>(s.limits.max_launch_jobs));
  ++s.plan_id;
  std::vector<PlannedBatch> batches;
  batches.reserve(jobs.size());
  size_t num_runnable = 0;
  for (CompressJob& job : jobs) {
    Status status = s.check_job(job);
    if (status.ok()) {
      std::swap(jobs[num_runnable++], job);
    } else {
      batches.push_back(s.start_batch(std::move(job), std::move(status)));
    }
  }
  jobs.resize(num_runnable);
  const size_t num_refused = batches.size();
  std::sort(jobs.begin(), jobs.end(), [&](const CompressJob& a, const CompressJob& b) {
    return std::tuple(s.group_of(a), a.job_id) < std::tuple(s.group_of(b), b.job_id);
  });
  for (CompressJob& job : jobs) {
    const size_t most = s.is_long(job) ? 1 : static_cast<size_t>(s.limits.max_batch_jobs);
    if (batches.size() > num_refused && batches.back().jobs.size() < most &&
        s.group_of(batches.back().jobs.front()) == s.group_of(job)) {
      batches.back().jobs.push_back(std::move(job));
    } else {
      batches.push_back(s.start_batch(std::move(job), Status()));
    }
  }
  const std::span<PlannedBatch> to_run = std::span(batches).subspan(num_refused);
  if (to_run.empty()) return batches;
  try {
    s.upload_tables(to_run, stream);
  } catch (...) {
    for (PlannedBatch& batch : to_run) batch.status = current_exception_status();
  }
  return batches;
}

void Compressor::run(const PlannedBatch& batch, Stream& stream) {
  State& s = *state_;
  if (!batch.status.ok()) throw Error(batch.status.code(), batch.status.message());
  ZIPAGE_CHECK_EQ(batch.plan, s.plan_id);
  const KvPolicy policy = batch.jobs.front().policy;
  const auto count = static_cast<int32_t>(batch.jobs.size());
  CompressionBatch jobs = s.tables.batch(s.device_tables, batch.first_row, count);
  PeakUpdateBatch windows = s.tables.peaks(s.device_tables, batch.first_row, count);
  for (const CompressJob& job : batch.jobs) {
    jobs.max_length = std::max(jobs.max_length, job.length);
    jobs.max_keep = std::max(jobs.max_keep, job.keep);
  }
  windows.max_length = jobs.max_length;
  int32_t* kept_slots = s.kept.as<int32_t>();
  const int32_t stride = batch.is_long ? s.scratch_plan.long_layers : s.scratch_plan.layers;
  for (int32_t layer = 0; layer < s.model.num_layers; layer += stride) {
    const int32_t num_layers = std::min(stride, s.model.num_layers - layer);
    const CompressionOpArgs args{&jobs, &s.kv, layer, num_layers, jobs.max_length};
    ScoreOps op(s.backend, stream, s.model, *s.policy_options[static_cast<size_t>(policy)], args,
                windows, batch.has_f, s.scratch);
    // method.md 3.1: steps 1 to 5, or what the policy does in their place; then 6, 7 and 8.
    float* score = score_entries(policy, op);
    op.protect(score);
    s.backend.top_k({args, score, kept_slots, jobs.max_keep}, stream);
    s.backend.compact({args, op.new_f(), kept_slots, jobs.max_keep}, stream);
    if (s.trace) s.trace->record(batch.jobs, args, score, kept_slots, stream);
  }
}

void Compressor::update_peaks(std::span<const PeakUpdate> updates, Stream& stream) {
  if (updates.empty()) return;
  State& s = *state_;
  ZIPAGE_CHECK_LE(updates.size(), static_cast<size_t>(s.limits.max_launch_jobs));
  if (s.kv.layers[0].scores == nullptr || s.kv.layers[0].queries == nullptr) {
    fail_invalid("policy peak: the KV cache was planned without query cache and scores F");
  }
  size_t stride = 1;
  for (const PeakUpdate& update : updates) {
    ZIPAGE_CHECK(update.slot.valid() && update.slot.value() < s.kv.num_slots);
    ZIPAGE_CHECK(update.length > 0 && update.length <= s.kv.score_capacity);
    ZIPAGE_CHECK(update.previous_length >= 0 && update.previous_length <= update.length);
    ZIPAGE_CHECK_GE(static_cast<int64_t>(update.blocks.size()) * s.kv.block_size, update.length);
    stride = std::max(stride, update.blocks.size());
  }
  const JobTables tables(static_cast<int32_t>(updates.size()), static_cast<int32_t>(stride));
  ZIPAGE_CHECK_LE(tables.bytes(), s.scratch_plan.table_bytes);
  std::byte* host = s.peak_uploader.acquire();
  for (size_t i = 0; i < updates.size(); ++i) {
    tables.set(host, static_cast<int32_t>(i), updates[i]);
  }
  const std::byte* device = s.peak_uploader.upload(tables.bytes(), stream);
  PeakUpdateBatch batch = tables.peaks(device, 0, static_cast<int32_t>(updates.size()));
  for (const PeakUpdate& update : updates) {
    batch.max_length = std::max(batch.max_length, update.length);
  }
  // F is kept, not scratch: all layers and updates at once.
  s.backend.peak_update({&batch, &s.kv, 0, s.model.num_layers, s.model.attention_scale,
                         static_cast<float>(s.options.attention_half_life), nullptr,
                         s.kv.score_capacity, s.peak_workspace.as<float>()},
                        stream);
}

size_t Compressor::device_bytes() const {
  const State& s = *state_;
  return s.rows.bytes() + s.kept.bytes() + s.workspace.bytes() + s.peak_workspace.bytes() +
         s.job_uploader.device_bytes() + s.peak_uploader.device_bytes();
}

void Compressor::set_trace(KvTraceSink* sink) {
  if (sink != nullptr) ZIPAGE_CHECK(state_->trace != nullptr);
  if (state_->trace != nullptr) state_->trace->set_sink(sink);
}

}  // namespace zipage
