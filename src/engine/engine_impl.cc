#include "engine/engine_impl.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "engine/output_builder.h"

namespace zipage {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  try {
    return std::unique_ptr<Engine>(
        std::make_unique<EngineImpl>(build_engine_parts(options), options));
  } catch (...) {
    return current_exception_status();
  }
}

EngineImpl::EngineImpl(EngineParts parts, const EngineOptions& options)
    : parts_(std::move(parts)), options_(options), last_log_(SteadyClock::now()) {
  if (options_.async_compression && parts_.compressor) {
    compression_stream_ = parts_.backend->create_stream(/*low_priority=*/true);
  }
  if (parts_.compressor && parts_.kv_trace) {
    kv_trace_ = std::make_unique<KvTraceLog>(*parts_.kv_trace, sequences_, parts_.log);
    parts_.compressor->set_trace(kv_trace_.get());
  }
  seats_.resize(static_cast<size_t>(options_.max_num_seqs), 0);
  results_.reserve(static_cast<size_t>(options_.max_num_seqs));
  pipelined_ = parts_.backend->traits().is_asynchronous;
  if (options_.seed) {
    seed_ = *options_.seed;
  } else {
    std::random_device entropy;
    seed_ = static_cast<uint64_t>(entropy()) << 32 | entropy();
    parts_.log.info("seed: {} (random; give it with --seed to repeat this run's draws)", seed_);
  }
  publish_stats();
}

// What is under way ends before its memory goes; nobody is left to be told.
EngineImpl::~EngineImpl() {
  stop();
  drain(parts_.runner->stream());
  if (compression_stream_) drain(*compression_stream_);
}

void EngineImpl::give_seats(const StepPlan& plan) {
  for (const PlannedRow& row : plan.rows) {
    if (!row.samples) continue;
    EngineSequence& sequence = *sequences_.at(row.sequence);
    if (sequence.seat >= 0 ||
        !(sequence.sampler().needs_counts() || sequence.sampler().needs_mask()))
      continue;
    auto seat = std::find(seats_.begin(), seats_.end(), SequenceId{0});
    if (seat == seats_.end()) {
      // Seats outlive preemption; a sequence that is in no row of this step gives its own up and
      // refills it later.
      seat = std::find_if(seats_.begin(), seats_.end(), [&](SequenceId owner) {
        return std::none_of(plan.rows.begin(), plan.rows.end(),
                            [&](const PlannedRow& r) { return r.sequence == owner; });
      });
      ZIPAGE_CHECK(seat != seats_.end());
      sequences_.at(*seat)->seat = -1;
    }
    *seat = row.sequence;
    sequence.seat = static_cast<int32_t>(seat - seats_.begin());
    parts_.runner->prepare_seat(sequence);
  }
}

bool EngineImpl::step() {
  bool more = false;
  try {
    more = broken_.ok() && run_step();
  } catch (...) {
    break_down(current_exception_status());
  }
  if (options_.step_done) options_.step_done();
  return more;
}

bool EngineImpl::run_step() {
  const auto start = SteadyClock::now();
  take_inbox();
  finish_compressions(/*wait=*/false);
  // Bad words are matched against tokens on the host.
  if (num_host_bound_ > 0) deliver_pending();
  const StepPlan& plan = parts_.scheduler->plan();
  if (plan.empty()) return step_without_rows(plan);
  totals_.schedule_seconds += seconds_since(start);
  LaunchedStep launched = std::move(spare_);
  launched.clear();
  start_sequences(plan);
  try {
    give_seats(plan);
    launched.ticket = parts_.runner->launch(plan, sequences_);
  } catch (...) {
    results_.assign(plan.rows.size(), RowResult{});
    fail_step(current_exception_status());
    parts_.scheduler->commit(plan, results_);
    return true;
  }
  expect_samples(plan, launched);
  if (!pipelined_) deliver(launched);
  const auto commit_start = SteadyClock::now();
  std::vector<CompressJob> jobs = parts_.scheduler->commit(plan, results_);
  totals_.schedule_seconds += seconds_since(commit_start);
  if (!jobs.empty()) launch_compressions(std::move(jobs));
  if (pipelined_) {
    // The device has this step to do: time to read the last one's samples.
    std::swap(pending_, launched);
    deliver(launched);
  }
  spare_ = std::move(launched);
  ++totals_.steps;
  totals_.step_seconds += seconds_since(start);
  publish_stats();
  log_stats();
  return true;
}

// Before the step's work is enqueued: on a CPU launching it is doing it.
void EngineImpl::start_sequences(const StepPlan& plan) {
  const auto now = SteadyClock::now();
  for (const PlannedRow& row : plan.rows) {
    EngineSequence& sequence = *sequences_.at(row.sequence);
    if (sequence.started()) continue;
    sequence.first_scheduled = now;
    start_sequence(sequence);
  }
}

// What a sequence needs from its first step on.
void EngineImpl::start_sequence(EngineSequence& sequence) {
  const RequestState& request = *sequence.request;
  const SamplingParams& params = request.sampling();
  if (request.sampler->reads_output()) ++num_host_bound_;
  sequence.tokens.reserve(static_cast<size_t>(sequence.num_prompt_tokens + request.max_new_tokens));
  sequence.tokens.assign(request.prompt->begin(), request.prompt->end());
  if (params.detokenize && parts_.tokenizer)
    sequence.decoder = parts_.tokenizer->new_decoder(params.skip_special_tokens);
  if (request.stops) sequence.stops = std::make_unique<StopMatcher>(*request.stops);
  if (!params.prompt_logprobs || sequence.index != 0) return;
  sequence.scores = std::make_unique<PromptScores>();
  sequence.scores->num_alternatives = *params.prompt_logprobs;
  sequence.scores->values.reserve(static_cast<size_t>(sequence.num_prompt_tokens - 1) *
                                  (static_cast<size_t>(*params.prompt_logprobs) + 1));
}

// Each prompt token once, also when a preemption has it computed again.
void EngineImpl::count_prompt_tokens(const PlannedRow& row, EngineSequence& sequence) {
  const int32_t begin = std::max(row.position, sequence.num_counted_prompt_tokens);
  const int32_t end = std::min(row.position + row.num_tokens, sequence.num_prompt_tokens);
  if (end <= begin) return;
  totals_.prompt_tokens += end - begin;
  sequence.num_counted_prompt_tokens = end;
}

// Holds a place for each token that the step samples, and says what commit() can know before the
// samples are read: that a sequence reaches its last token.
void EngineImpl::expect_samples(const StepPlan& plan, LaunchedStep& launched) {
  results_.clear();
  for (const PlannedRow& row : plan.rows) {
    totals_.kv_entries_read += row.kv_begin + row.num_tokens;
    RowResult& result = results_.emplace_back();
    EngineSequence& sequence = *sequences_.at(row.sequence);
    count_prompt_tokens(row, sequence);
    if (const ScoredRange range = scored_range(row, sequence); range.count > 0) {
      launched.scored.push_back({row.sequence, range.count});
      sequence.scores->num_launched = range.first + range.count;
    }
    if (!row.samples) continue;
    sequence.num_cached_tokens = parts_.scheduler->cached_tokens(row.sequence);
    const auto sample = static_cast<int32_t>(launched.sampled.size());
    sequence.tokens.push_back(-1 - sample);
    launched.sampled.push_back({row.sequence, results_.size() - 1});
    result = {.sampled = true,
              .token = sequence.tokens.back(),
              .finished = sequence.num_sampled() >= sequence.request->max_new_tokens};
  }
}

// Nothing to compute now: compressions that found their blocks may start, or one in flight must end
// first.
bool EngineImpl::step_without_rows(const StepPlan& plan) {
  std::vector<CompressJob> jobs = parts_.scheduler->commit(plan, {});
  if (!pending_.empty()) {
    deliver_pending();
    if (!jobs.empty()) launch_compressions(std::move(jobs));
    publish_stats();
    return true;
  }
  const bool launched = !jobs.empty();
  if (launched) launch_compressions(std::move(jobs));
  if (!launched && !in_flight_.empty()) {
    finish_compressions(/*wait=*/true);
  } else if (!launched && parts_.scheduler->has_unfinished()) {
    fail_all(Status(StatusCode::kInternal,
                    "the scheduler found nothing to run for requests that are not finished"));
  }
  publish_stats();
  return parts_.scheduler->has_unfinished();
}

// Reads a step's samples and calls back. A sequence that a stop condition ends leaves the scheduler
// here when its step was committed without knowing it, and with the commit otherwise. One that was
// aborted meanwhile is gone.
void EngineImpl::deliver(const LaunchedStep& step) {
  if (step.empty()) return;
  StepSamples samples;
  try {
    samples = parts_.runner->collect(step.ticket);
  } catch (...) {
    fail_step(current_exception_status());
    return;
  }
  size_t score = 0;
  for (const LaunchedStep::Scored& scored : step.scored) {
    const auto found = sequences_.find(scored.sequence);
    if (found != sequences_.end()) {
      const StepSamples scores = parts_.runner->prompt_scores(step.ticket);
      keep_scores(*found->second, scores, score, scored.count);
    }
    score += static_cast<size_t>(scored.count);
  }
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const auto found = sequences_.find(step.sampled[i].sequence);
    if (found == sequences_.end()) continue;
    EngineSequence& sequence = *found->second;
    deliver_sample(sequence, samples, i, output_);
    totals_.generation_tokens += static_cast<int64_t>(output_.new_token_ids.size());
    if (output_.finish_reason == FinishReason::kError) {
      parts_.log.write(LogLevel::kError, fmt::format("request {}: {}", sequence.request->id,
                                                     output_.error.message()));
    }
    sequence.request->callback(output_);
    if (!pipelined_) {
      results_[step.sampled[i].row] = {
          .sampled = true, .token = samples.tokens[i], .finished = output_.finished()};
    } else if (output_.finished()) {
      parts_.scheduler->abort(sequence.id);
    }
    if (output_.finished()) end_sequence(sequence.id);
  }
}

void EngineImpl::deliver_pending() {
  deliver(pending_);
  pending_.clear();
}

void EngineImpl::end_sequence(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  EngineSequence& sequence = *found->second;
  if (sequence.seat >= 0) seats_[static_cast<size_t>(sequence.seat)] = 0;
  parts_.cache->drop_swapped(id);
  RequestState& request = *sequence.request;
  if (sequence.started() && request.sampler->reads_output()) --num_host_bound_;
  sequences_.erase(found);
  if (--request.live_sequences == 0) requests_.erase(request.id);
  std::lock_guard lock(mutex_);
  --unfinished_sequences_;
}

void EngineImpl::run_until_idle() {
  while (!stopping_.load() && step()) {
  }
  stopping_.store(false);
}

void EngineImpl::start() {
  ZIPAGE_CHECK(!thread_.joinable());
  stopping_.store(false);
  thread_ = std::thread([this] {
    while (!stopping_.load()) {
      if (step()) continue;
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        return stopping_.load() || !inbox_.empty() || !aborts_.empty() || reset_prefix_;
      });
    }
  });
}

void EngineImpl::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    wake_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
    stopping_.store(false);
  }
}

EngineStats EngineImpl::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

Status EngineImpl::health() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void EngineImpl::publish_stats() {
  const SchedulerStats s = parts_.scheduler->stats();
  EngineStats t = totals_;
  t.num_running = s.num_running;
  t.num_swapped = s.num_swapped;
  t.num_compressing = s.num_compressing;
  t.num_blocks = parts_.info.num_blocks;
  t.num_free_blocks = s.num_free_blocks;
  t.num_cached_blocks = s.num_cached_blocks;
  t.num_query_slots = parts_.info.max_query_slots;
  t.num_used_query_slots = s.num_used_slots;
  t.recomputed_tokens = s.recomputed_tokens;
  t.preemptions = s.preemptions;
  t.compressions = s.compressions;
  t.prefix_cache_queries = s.prefix_queries;
  t.prefix_cache_hits = s.prefix_hits;
  t.swapped_out_blocks = s.swapped_out_blocks;
  t.swapped_in_blocks = s.swapped_in_blocks;
  t.evicted_tokens = s.evicted_tokens;
  const ForwardTimes& times = parts_.decoder->times();
  t.attention_seconds = times.attention_seconds;
  t.linear_seconds = times.linear_seconds;
  t.sample_seconds = parts_.runner->sample_seconds();
  t.other_seconds = times.other_seconds;
  std::lock_guard lock(mutex_);
  t.num_waiting = s.num_waiting;
  for (const auto& request : inbox_) t.num_waiting += request->live_sequences;
  stats_ = t;
}

// Every ten seconds of work, in vLLM's words.
void EngineImpl::log_stats() {
  const double seconds = seconds_since(last_log_);
  if (seconds < 10) return;
  const EngineStats& s = stats_;
  const double used = 1.0 - static_cast<double>(s.num_free_blocks) /
                                static_cast<double>(std::max<int64_t>(s.num_blocks, 1));
  const double hits = s.prefix_cache_queries > 0 ? static_cast<double>(s.prefix_cache_hits) /
                                                       static_cast<double>(s.prefix_cache_queries)
                                                 : 0.0;
  parts_.log.debug(
      "Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, "
      "Running: {} reqs, Waiting: {} "
      "reqs, KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
      static_cast<double>(s.prompt_tokens - logged_prompt_tokens_) / seconds,
      static_cast<double>(s.generation_tokens - logged_generation_tokens_) / seconds, s.num_running,
      s.num_waiting, 100 * used, 100 * hits);
  logged_prompt_tokens_ = s.prompt_tokens;
  logged_generation_tokens_ = s.generation_tokens;
  last_log_ = SteadyClock::now();
}

SamplingParams EngineImpl::default_sampling_params() const {
  SamplingParams params;
  const GenerationConfig& g = parts_.generation;
  if (g.temperature) params.temperature = *g.temperature;
  if (g.do_sample && !*g.do_sample) params.temperature = 0;
  if (g.top_p) params.top_p = *g.top_p;
  if (g.top_k) params.top_k = *g.top_k;
  if (g.min_p) params.min_p = *g.min_p;
  if (g.repetition_penalty) params.repetition_penalty = *g.repetition_penalty;
  return params;
}

std::vector<SequenceId> EngineImpl::sequences_for_test(RequestId id) const {
  std::vector<SequenceId> ids;
  for (const auto& [sequence_id, sequence] : sequences_) {
    if (sequence->request->id == id) ids.push_back(sequence_id);
  }
  return ids;
}

}  // namespace zipage
