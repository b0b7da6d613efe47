#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace zipage {
namespace {

ScorerLimits scorer_limits(const RunnerLimits& limits, int32_t vocab) {
  return {.max_tokens = limits.batch.max_tokens,
          .max_logits = limits.batch.max_logits,
          .max_logprobs = limits.max_logprobs,
          .vocab = vocab};
}

}  // namespace

size_t ModelRunner::bytes(const RunnerLimits& limits, int32_t vocab) {
  const size_t seat_words = static_cast<size_t>(vocab) + (static_cast<size_t>(vocab) + 31) / 32;
  return BatchBuilder::upload_bytes(limits.batch) +
         static_cast<size_t>(
             SampleLayout(limits.batch.max_logits, limits.max_logprobs).total_bytes) +
         limits.sample_workspace_bytes + PromptScorer::bytes(scorer_limits(limits, vocab)) +
         static_cast<size_t>(limits.batch.max_rows) * seat_words * sizeof(uint32_t);
}

ModelRunner::ModelRunner(Backend& backend,
                         Decoder& decoder,
                         KvCache& cache,
                         Compressor* compressor,
                         int32_t vocab,
                         const RunnerLimits& limits)
    : backend_(backend),
      decoder_(decoder),
      cache_(cache),
      compressor_(compressor),
      vocab_(vocab),
      limits_(limits),
      stream_(backend.create_stream(false)),
      builder_(backend, limits.batch),
      scorer_(backend, decoder, scorer_limits(limits, vocab)) {
  const auto sample_bytes =
      static_cast<size_t>(SampleLayout(limits.batch.max_logits, limits.max_logprobs).total_bytes);
  device_samples_ = backend.allocate(sample_bytes, MemorySpace::kDevice);
  for (Returned& step : returned_) {
    step.host = backend.allocate(sample_bytes, MemorySpace::kHost);
    step.done = backend.create_event();
  }
  sample_workspace_ =
      backend.allocate(std::max<size_t>(limits.sample_workspace_bytes, 1), MemorySpace::kDevice);
  const auto rows = static_cast<size_t>(limits.batch.max_rows);
  const size_t mask_words = (static_cast<size_t>(vocab) + 31) / 32;
  counts_ =
      backend.allocate(rows * static_cast<size_t>(vocab) * sizeof(uint32_t), MemorySpace::kDevice);
  masks_ = backend.allocate(rows * mask_words * sizeof(uint32_t), MemorySpace::kDevice);
  seat_staging_ =
      backend.allocate(static_cast<size_t>(vocab) * sizeof(uint32_t), MemorySpace::kHost);
  peak_updates_.reserve(rows);
}

void ModelRunner::prepare_seat(const EngineSequence& sequence) {
  const auto seat = static_cast<size_t>(sequence.seat);
  const auto upload = [&](const Buffer& table, size_t words, auto&& fill) {
    std::span<uint32_t> staging(seat_staging_.as<uint32_t>(), words);
    fill(staging);
    backend_.copy(table.data() + seat * words * sizeof(uint32_t), staging.data(),
                  words * sizeof(uint32_t), *stream_);
    backend_.synchronize(*stream_);
  };
  if (sequence.sampler().needs_counts()) {
    upload(counts_, static_cast<size_t>(vocab_), [&](std::span<uint32_t> counts) {
      sequence.sampler().fill_counts(sequence.tokens, sequence.num_prompt_tokens, counts);
    });
  }
  if (sequence.sampler().needs_mask()) {
    upload(masks_, (static_cast<size_t>(vocab_) + 31) / 32,
           [&](std::span<uint32_t> mask) { sequence.sampler().fill_mask(mask); });
  }
}

void ModelRunner::capture_graphs(const Decoder::Progress& progress) {
  if (!backend_.traits().supports_graphs) return;
  // Dense where batches are small and a row more is a good part of the step, every eighth row after
  // that.
  std::vector<int32_t> sizes = {1, 2, 4};
  for (int32_t size = 8; size <= limits_.batch.max_rows; size += 8) sizes.push_back(size);
  while (sizes.back() > limits_.batch.max_rows) sizes.pop_back();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto forward = [&] {
      StepBatch batch = builder_.batch();
      batch.max_kv_len = limits_.max_kv_len;
      decoder_.forward(batch, cache_.view(), device_samples_.as<int32_t>(), *stream_);
    };
    builder_.reset();
    builder_.pad_to(sizes[i]);
    builder_.upload(0, *stream_);
    forward();  // what is set up at a first call must not be captured
    backend_.synchronize(*stream_);
    backend_.begin_capture(*stream_);
    forward();
    graphs_.push_back({sizes[i], backend_.end_capture(*stream_)});
    if (progress) progress(static_cast<int>(i) + 1, static_cast<int>(sizes.size()));
  }
  backend_.synchronize(*stream_);
}

const ModelRunner::CapturedDecode* ModelRunner::captured_for(const StepPlan& plan) const {
  const auto rows = static_cast<int32_t>(plan.rows.size());
  if (profiling_ || graphs_.empty() || plan.num_tokens != rows || rows > graphs_.back().num_rows)
    return nullptr;
  if (!std::all_of(plan.rows.begin(), plan.rows.end(),
                   [](const PlannedRow& row) { return row.samples; }))
    return nullptr;
  return &*std::lower_bound(
      graphs_.begin(), graphs_.end(), rows,
      [](const CapturedDecode& captured, int32_t n) { return captured.num_rows < n; });
}

int ModelRunner::launch(const StepPlan& plan, const SequenceTable& sequences) {
  for (const SwapOp& op : plan.swaps) {
    const SwapMove move{op.sequence, op.slot, op.device_blocks, op.host_blocks};
    if (op.out) {
      cache_.swap_out(move, *stream_);
    } else {
      cache_.swap_in(move, *stream_);
    }
  }
  const int ticket = next_ticket_;
  next_ticket_ = 1 - next_ticket_;
  Returned& step = returned_[static_cast<size_t>(ticket)];
  step.num_samples = 0;
  step.max_logprobs = -1;
  if (!plan.rows.empty()) {
    builder_.build(plan, sequences);
    step.num_samples = builder_.batch().num_logits;
    const int32_t num_bias = fill_sample_rows(plan, sequences, step);
    const CapturedDecode* captured = captured_for(plan);
    if (captured != nullptr) builder_.pad_to(captured->num_rows);
    builder_.upload(num_bias, *stream_);
    if (captured != nullptr) {
      captured->graph->launch(*stream_);
    } else {
      decoder_.forward(builder_.batch(), cache_.view(), device_samples_.as<int32_t>(), *stream_);
    }
    update_peaks(plan);
    if (step.num_samples > 0) sample(step);
    const int32_t num_scored =
        scorer_.run(ticket, plan, sequences, sample_workspace_.data(), *stream_);
    ZIPAGE_CHECK(captured == nullptr || num_scored == 0);  // its hidden states may lie elsewhere
    if (profiling_) take_profile(step);
  }
  step.done->record(*stream_);
  return ticket;
}

void ModelRunner::set_profiling(bool on) {
  // Where the host times each op there is nothing to add.
  profiling_ = on && backend_.traits().is_asynchronous;
  decoder_.set_profiling(profiling_);
  if (!sample_begin_) {
    sample_begin_ = backend_.create_event();
    sample_end_ = backend_.create_event();
  }
}

void ModelRunner::take_profile(const Returned& step) {
  backend_.synchronize(*stream_);
  decoder_.take_profile();
  if (step.num_samples > 0) sample_seconds_ += sample_end_->seconds_since(*sample_begin_);
}

// Returns the number of bias entries.
int32_t ModelRunner::fill_sample_rows(const StepPlan& plan,
                                      const SequenceTable& sequences,
                                      Returned& step) {
  BiasList bias{builder_.bias_ids(), builder_.bias_values()};
  size_t next = 0;
  for (const PlannedRow& planned : plan.rows) {
    if (!planned.samples) continue;
    const EngineSequence& sequence = *sequences.at(planned.sequence);
    const SampleRow row = sequence.sampler().row(sequence.tokens, sequence.num_prompt_tokens,
                                                 sequence.seed, sequence.seat, bias);
    step.max_logprobs = std::max(step.max_logprobs, row.num_logprobs);
    builder_.sample_rows()[next++] = row;
  }
  return bias.count;
}

void ModelRunner::sample(Returned& step) {
  const auto start = std::chrono::steady_clock::now();
  const SampleLayout layout(limits_.batch.max_logits, limits_.max_logprobs);
  auto* words = device_samples_.as<int32_t>();
  auto* floats = device_samples_.as<float>();
  const bool logprobs = step.max_logprobs >= 0;
  const int32_t alternatives = std::max(step.max_logprobs, 0);
  if (profiling_) sample_begin_->record(*stream_);
  backend_.sample({.logits = decoder_.logits(),
                   .num_rows = step.num_samples,
                   .vocab = vocab_,
                   .rows = builder_.device_sample_rows(),
                   .bias_ids = builder_.device_bias_ids(),
                   .bias_values = builder_.device_bias_values(),
                   .token_counts = counts_.as<uint32_t>(),
                   .allowed_masks = masks_.as<uint32_t>(),
                   .max_logprobs = alternatives,
                   .tokens = words + layout.tokens,
                   .token_logprobs = logprobs ? floats + layout.logprobs : nullptr,
                   .token_ranks = logprobs ? words + layout.ranks : nullptr,
                   .top_ids = alternatives > 0 ? words + layout.top_ids : nullptr,
                   .top_logprobs = alternatives > 0 ? floats + layout.top_logprobs : nullptr,
                   .workspace = sample_workspace_.data()},
                  *stream_);
  if (profiling_) sample_end_->record(*stream_);
  // Without log-probabilities only the tokens come back.
  const size_t bytes = logprobs ? static_cast<size_t>(layout.total_bytes)
                                : sizeof(int32_t) * static_cast<size_t>(step.num_samples);
  backend_.copy(step.host.data(), device_samples_.data(), bytes, *stream_);
  if (!profiling_) {
    sample_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

void ModelRunner::update_peaks(const StepPlan& plan) {
  peak_updates_.clear();
  for (const PlannedRow& row : plan.rows) {
    if (row.peak_previous_length < 0) continue;
    // The plan counts true tokens, the compressor stored entries: evicted tokens are between the
    // two.
    const int32_t evicted = row.position - row.kv_begin;
    peak_updates_.push_back(
        {.slot = row.slot,
         .length = row.kv_begin + row.num_tokens,
         .previous_length = row.peak_previous_length > 0 ? row.peak_previous_length - evicted : 0,
         .blocks =
             std::span(plan.blocks)
                 .subspan(static_cast<size_t>(row.table), static_cast<size_t>(row.num_blocks))});
  }
  if (peak_updates_.empty()) return;
  ZIPAGE_CHECK(compressor_ != nullptr);
  compressor_->update_peaks(peak_updates_, *stream_);
}

StepSamples ModelRunner::collect(int ticket) {
  const Returned& step = returned_[static_cast<size_t>(ticket)];
  step.done->wait();
  const SampleLayout layout(limits_.batch.max_logits, limits_.max_logprobs);
  StepSamples samples =
      layout.view(step.host, static_cast<size_t>(step.num_samples), std::max(0, step.max_logprobs));
  // Without log-probabilities only the tokens came back.
  if (step.max_logprobs >= 0) return samples;
  StepSamples only_tokens;
  only_tokens.tokens = samples.tokens;
  return only_tokens;
}

}  // namespace zipage
