#include "compress/compressor.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "compress/job_tables.h"
#include "compress/pipeline.h"
#include "compress/scratch_plan.h"
#include "compress/table_uploader.h"
#include "compress/trace_recorder.h"
#include "kvcache/memory_plan.h"

namespace zipage {
namespace {

constexpr size_t kNumPolicies = static_cast<size_t>(KvPolicy::kRandom) + 1;

// Jobs with equal keys are scored by the same pipeline and may share a batch.
struct GroupKey {
  KvPolicy policy = KvPolicy::kPeak;
  bool is_long = false;          // longer than the score cache: one job and fewer layers at a time
  bool without_history = false;  // peak before its first F
  auto operator<=>(const GroupKey&) const = default;
};

// The seed of policy `random`: drawn anew at each compression, the same whatever runs beside it.
uint64_t job_seed(uint64_t seed, const CompressJob& job) {
  uint64_t x = seed + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(job.position_offset) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct PolicyPipeline {
  Status status;  // why the options do not suit this policy
  std::optional<Pipeline> pipeline;
  std::optional<Pipeline> without_history;
};

PolicyPipeline make_pipeline(CompressionOptions options,
                             KvPolicy policy,
                             const CompressorLimits& limits) {
  options.kv_policy = policy;
  options.kv_budget = int64_t{limits.max_blocks_per_seq - 1} * limits.block_size;
  auto resolved = options.resolved(limits.block_size);
  PolicyPipeline made;
  made.status = resolved.status();
  if (!made.status.ok()) return made;
  made.pipeline.emplace(*resolved);
  if (policy == KvPolicy::kPeak) made.without_history.emplace(*resolved, true);
  return made;
}

}  // namespace

struct Compressor::State {
  State(Backend& the_backend,
        const PagedKvView& the_kv,
        const CompressionModel& the_model,
        const CompressionOptions& the_options,
        const CompressorLimits& the_limits);

  GroupKey key_of(const CompressJob& job) const;
  Status can_run(KvPolicy policy) const;
  void check_job(const CompressJob& job) const;
  void run_batch(std::span<const CompressJob* const> jobs,
                 const GroupKey& key,
                 int32_t first,
                 const JobTables& tables,
                 const std::byte* device,
                 Stream& stream);

  Backend& backend;
  const PagedKvView kv;
  const CompressionModel model;
  const CompressionOptions options;
  const CompressorLimits limits;
  const ScratchPlan plan;
  std::array<PolicyPipeline, kNumPolicies> pipelines;
  Buffer rows, kept, workspace, peak_workspace;
  TableUploader job_uploader, peak_uploader;
  std::vector<const CompressJob*> order;  // the launch's jobs, by group
  std::unique_ptr<TraceRecorder> trace;
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
      plan(make_scratch_plan(the_backend, the_model, the_options, the_limits)),
      rows(backend.allocate(plan.rows_bytes(), MemorySpace::kDevice)),
      kept(backend.allocate(plan.kept_bytes(), MemorySpace::kDevice)),
      workspace(backend.allocate(plan.workspace_bytes, MemorySpace::kDevice)),
      peak_workspace(backend.allocate(plan.peak_workspace_bytes, MemorySpace::kDevice)),
      job_uploader(backend, plan.table_bytes),
      peak_uploader(backend, plan.table_bytes) {
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
  for (size_t i = 0; i < kNumPolicies; ++i) {
    pipelines[i] = make_pipeline(options, static_cast<KvPolicy>(i), limits);
  }
  const Status& own = pipelines[static_cast<size_t>(options.kv_policy)].status;
  if (!own.ok()) throw Error(own.code(), own.message());
  order.reserve(static_cast<size_t>(limits.max_launch_jobs));
  if (limits.trace) trace = std::make_unique<TraceRecorder>(backend, kv, plan);
}

GroupKey Compressor::State::key_of(const CompressJob& job) const {
  GroupKey key;
  key.policy = job.policy;
  key.is_long = job.length > kv.score_capacity;
  // method.md 3.2: a prompt longer than N_max * b has no F before its first compression.
  key.without_history = job.policy == KvPolicy::kPeak && job.history == 0 &&
                        job.length > job.max_blocks * kv.block_size;
  return key;
}

Status Compressor::State::can_run(KvPolicy policy) const {
  const auto index = static_cast<size_t>(policy);
  ZIPAGE_CHECK_LT(index, kNumPolicies);
  if (!pipelines[index].status.ok()) return pipelines[index].status;
  const KvPolicy one[] = {policy};
  const SlotContents needs = slot_contents(one);
  const LayerKvView& layer = kv.layers[0];
  if ((needs.queries && layer.queries == nullptr) || (needs.scores && layer.scores == nullptr) ||
      (needs.positions && layer.positions == nullptr)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("kv_policy {} of a request: the KV cache was planned without the "
                              "memory it needs",
                              to_string(policy)));
  }
  return Status();
}

void Compressor::State::check_job(const CompressJob& job) const {
  if (const Status status = can_run(job.policy); !status.ok())
    throw Error(status.code(), status.message());
  ZIPAGE_CHECK(job.slot.valid() && job.slot.value() < kv.num_slots);
  ZIPAGE_CHECK(job.keep > 0 && job.keep <= job.length && job.keep <= plan.max_keep);
  ZIPAGE_CHECK(job.history >= 0 && job.history <= job.length);
  ZIPAGE_CHECK_LE(job.history, kv.score_capacity);
  ZIPAGE_CHECK_LE(job.length, std::max(plan.long_capacity, kv.score_capacity));
  ZIPAGE_CHECK_GE(static_cast<int64_t>(job.source.size()) * kv.block_size, job.length);
  ZIPAGE_CHECK_GE(static_cast<int64_t>(job.target.size()) * kv.block_size, job.keep);
}

void Compressor::State::run_batch(std::span<const CompressJob* const> jobs,
                                  const GroupKey& key,
                                  int32_t first,
                                  const JobTables& tables,
                                  const std::byte* device,
                                  Stream& stream) {
  const auto count = static_cast<int32_t>(jobs.size());
  CompressionBatch batch = tables.batch(device, first, count);
  PeakUpdateBatch peaks = tables.peaks(device, first, count);
  for (const CompressJob* job : jobs) {
    batch.max_length = std::max(batch.max_length, job->length);
    batch.max_keep = std::max(batch.max_keep, job->keep);
  }
  peaks.max_length = batch.max_length;
  const PolicyPipeline& policy = pipelines[static_cast<size_t>(key.policy)];
  const Pipeline& pipeline = key.without_history ? *policy.without_history : *policy.pipeline;
  const int32_t step = key.is_long ? plan.long_layers : plan.layers;

  ScoreContext context;
  context.backend = &backend;
  context.stream = &stream;
  context.model = &model;
  context.workspace = workspace.as<float>();
  context.peaks = &peaks;
  for (int i = 0; i < plan.num_rows; ++i) {
    context.rows[static_cast<size_t>(i)] =
        rows.as<float>() + static_cast<size_t>(i) * plan.row_floats;
  }
  for (int32_t layer = 0; layer < model.num_layers; layer += step) {
    context.ops = {&batch, &kv, layer, std::min(step, model.num_layers - layer), batch.max_length};
    context.attention = context.redundancy = context.score = nullptr;
    context.history = nullptr;
    pipeline.run(context);
    int32_t* kept_slots = kept.as<int32_t>();
    backend.top_k({context.ops, context.score, kept_slots, batch.max_keep}, stream);
    backend.compact({context.ops, context.history, kept_slots, batch.max_keep}, stream);
    if (trace) trace->record(jobs, context.ops, context.score, kept_slots, stream);
  }
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

void Compressor::launch(std::span<const CompressJob> jobs,
                        Stream& stream,
                        const Enqueued& enqueued) {
  State& s = *state_;
  ZIPAGE_CHECK_LE(jobs.size(), static_cast<size_t>(s.limits.max_launch_jobs));
  // Runs a part of the work for some jobs and passes on what became of it.
  const auto attempt = [&](std::span<const CompressJob* const> batch, bool is_last, auto&& work) {
    Status status;
    try {
      work();
    } catch (...) {
      if (!enqueued) throw;
      status = current_exception_status();
    }
    if (enqueued && (is_last || !status.ok())) enqueued(batch, status);
    return status.ok();
  };
  size_t stride = 1;
  s.order.clear();
  for (const CompressJob& job : jobs) {
    const CompressJob* const one = &job;
    if (!attempt({&one, 1}, /*is_last=*/false, [&] { s.check_job(job); })) continue;
    stride = std::max({stride, job.source.size(), job.target.size()});
    s.order.push_back(&job);
  }
  if (s.order.empty()) return;
  std::sort(s.order.begin(), s.order.end(), [&](const CompressJob* a, const CompressJob* b) {
    const GroupKey key_a = s.key_of(*a);
    const GroupKey key_b = s.key_of(*b);
    return key_a != key_b ? key_a < key_b : a < b;
  });
  const JobTables tables(static_cast<int32_t>(s.order.size()), static_cast<int32_t>(stride));
  const std::byte* device = nullptr;
  const auto upload = [&] {
    ZIPAGE_CHECK_LE(tables.bytes(), s.plan.table_bytes);
    std::byte* host = s.job_uploader.acquire();
    for (size_t i = 0; i < s.order.size(); ++i) {
      tables.set(host, static_cast<int32_t>(i), *s.order[i],
                 job_seed(s.options.random_seed, *s.order[i]));
    }
    device = s.job_uploader.upload(tables.bytes(), stream);
  };
  if (!attempt(s.order, /*is_last=*/false, upload)) return;
  for (size_t begin = 0; begin < s.order.size();) {
    const GroupKey key = s.key_of(*s.order[begin]);
    const size_t most = key.is_long ? 1 : static_cast<size_t>(s.limits.max_batch_jobs);
    size_t end = begin + 1;
    while (end < s.order.size() && end - begin < most && s.key_of(*s.order[end]) == key) ++end;
    const std::span<const CompressJob* const> batch(&s.order[begin], end - begin);
    attempt(batch, /*is_last=*/true,
            [&] { s.run_batch(batch, key, static_cast<int32_t>(begin), tables, device, stream); });
    begin = end;
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
  ZIPAGE_CHECK_LE(tables.bytes(), s.plan.table_bytes);
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
