#include "engine/engine_impl.h"

#include <algorithm>

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

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

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
  pipelined_ = parts_.backend->info().kind != "cpu";
  publish_stats();
}

// What is under way ends before its memory goes; nobody is left to be told.
EngineImpl::~EngineImpl() {
  stop();
  drain(parts_.runner->stream());
  if (compression_stream_) drain(*compression_stream_);
}

int32_t EngineImpl::max_new_tokens(const Request& request) const {
  const int64_t room =
      parts_.info.max_model_len - static_cast<int64_t>(request.prompt_token_ids.size());
  return static_cast<int32_t>(std::min(room, request.sampling.max_tokens.value_or(room)));
}

SequenceSpec EngineImpl::spec_of(const RequestState& state,
                                 SequenceId id,
                                 int32_t index,
                                 int32_t new_tokens) const {
  const Request& request = state.request;
  SequenceSpec spec;
  spec.id = id;
  spec.prompt = request.prompt_token_ids;
  spec.max_new_tokens = new_tokens;
  spec.kv_budget = request.sampling.kv_budget.value_or(parts_.info.compression.kv_budget);
  spec.kv_policy = request.sampling.kv_policy.value_or(parts_.info.compression.kv_policy);
  spec.priority = request.priority;
  // Cached blocks have no hidden states to score. One of the n sequences scores the prompt for all.
  spec.reads_prefix_cache = !request.sampling.skip_reading_prefix_cache &&
                            !(request.sampling.prompt_logprobs && index == 0);
  if (!request.cache_salt.empty()) spec.hash_keys.push_back(request.cache_salt);
  return spec;
}

Status EngineImpl::check(const Request& request) const {
  const auto invalid = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  if (request.prompt_token_ids.empty())
    return invalid("prompt: empty; at least one token is needed");
  for (const int32_t token : request.prompt_token_ids) {
    if (token < 0 || token >= parts_.info.vocab_size) {
      return invalid(
          fmt::format("prompt: token id {} is not in [0, {})", token, parts_.info.vocab_size));
    }
  }
  const auto length = static_cast<int64_t>(request.prompt_token_ids.size());
  if (length >= parts_.info.max_model_len) {
    return invalid(fmt::format("prompt: {} tokens leave no room for output; max_model_len is {}",
                               length, parts_.info.max_model_len));
  }
  if (Status status = request.sampling.validate(parts_.info.vocab_size); !status.ok())
    return status;
  const int64_t logprobs = request.sampling.logprobs.value_or(0);
  if (logprobs > parts_.max_logprobs || logprobs < 0) {
    return invalid(fmt::format("logprobs: {} is not in [0, {}]", logprobs, parts_.max_logprobs));
  }
  const int64_t scores = request.sampling.prompt_logprobs.value_or(0);
  if (scores > parts_.max_logprobs || scores < 0) {
    return invalid(
        fmt::format("prompt_logprobs: {} is not in [0, {}]", scores, parts_.max_logprobs));
  }
  if (Status status = check_sampler(request.sampling); !status.ok()) return status;
  RequestState probe;
  probe.request = request;
  const SequenceSpec spec = spec_of(probe, 0, 0, max_new_tokens(request));
  if (spec.kv_budget != kFullKv && parts_.compressor) {
    if (Status status = parts_.compressor->can_run(spec.kv_policy); !status.ok()) return status;
  }
  return parts_.scheduler->can_ever_run(spec);
}

// What the sampler of this engine has room for, and what it needs a tokenizer for.
Status EngineImpl::check_sampler(const SamplingParams& params) const {
  const auto invalid = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  if (!parts_.tokenizer && !params.bad_words.empty())
    return invalid("bad_words: the model has no tokenizer");
  if (!parts_.tokenizer && !params.stop.empty()) return invalid("stop: the model has no tokenizer");
  // Each of these may forbid or move tokens of one step.
  const size_t stops = params.min_tokens > 0
                           ? params.stop_token_ids.size() + parts_.generation.eos_token_ids.size()
                           : 0;
  const size_t biases = params.logit_bias.size() + params.bad_words.size() + stops;
  if (biases > static_cast<size_t>(parts_.max_bias)) {
    return invalid(fmt::format(
        "logit_bias: {} entries; at most {}, with bad_words and the stop_token_ids that "
        "min_tokens holds back",
        biases, parts_.max_bias));
  }
  return Status();
}

Result<RequestId> EngineImpl::submit(Request request, OutputCallback callback) {
  if (Status status = check(request); !status.ok()) return status;
  auto state = std::make_unique<RequestState>();
  state->request = std::move(request);
  state->callback = std::move(callback);
  state->submitted = SteadyClock::now();
  std::lock_guard lock(mutex_);
  if (!broken_.ok()) return broken_;
  if (options_.max_queued_requests > 0 && queued_requests_ >= options_.max_queued_requests) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the queue is full: {} requests wait (max_queued_requests)", queued_requests_));
  }
  const RequestId id = next_request_++;
  state->id = id;
  ++queued_requests_;
  inbox_.push_back(std::move(state));
  wake_.notify_all();
  return id;
}

void EngineImpl::abort(RequestId id) {
  std::lock_guard lock(mutex_);
  if (!broken_.ok()) return;  // there is nobody left
  aborts_.push_back(id);
  wake_.notify_all();
}

void EngineImpl::reset_prefix_cache() {
  std::lock_guard lock(mutex_);
  if (!broken_.ok()) return;
  reset_prefix_ = true;
  wake_.notify_all();
}

void EngineImpl::take_inbox() {
  std::vector<std::unique_ptr<RequestState>> arrived;
  std::vector<RequestId> aborts;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(inbox_);
    aborts.swap(aborts_);
    if (std::exchange(reset_prefix_, false)) parts_.scheduler->reset_prefix_cache();
  }
  for (auto& state : arrived) admit(std::move(state));
  for (const RequestId id : aborts) {
    std::vector<SequenceId> ended;
    for (const auto& [sequence_id, sequence] : sequences_) {
      if (sequence->request->id == id) ended.push_back(sequence_id);
    }
    for (const SequenceId sequence_id : ended) {
      begin_output(*sequences_.at(sequence_id), output_);
      output_.finish_reason = FinishReason::kAbort;
      sequences_.at(sequence_id)->request->callback(output_);
      parts_.scheduler->abort(sequence_id);
      end_sequence(sequence_id);
    }
  }
}

void EngineImpl::admit(std::unique_ptr<RequestState> state) {
  RequestState& request = *state;
  requests_.emplace(request.id, std::move(state));
  const SamplingParams& params = request.request.sampling;
  request.live_sequences = params.n;
  for (int32_t i = 0; i < params.n; ++i) {
    const SequenceId id = next_sequence_++;
    auto sequence = std::make_unique<EngineSequence>();
    sequence->id = id;
    sequence->request = &request;
    sequence->index = i;
    sequence->num_prompt_tokens = static_cast<int32_t>(request.request.prompt_token_ids.size());
    sequence->max_new_tokens = max_new_tokens(request.request);
    sequence->tokens.reserve(
        static_cast<size_t>(sequence->num_prompt_tokens + sequence->max_new_tokens));
    sequence->tokens = request.request.prompt_token_ids;
    sequence->tokens.reserve(
        static_cast<size_t>(sequence->num_prompt_tokens + sequence->max_new_tokens));
    const bool detokenize = params.detokenize && parts_.tokenizer;
    if (detokenize) sequence->decoder = parts_.tokenizer->new_decoder(params.skip_special_tokens);
    if (detokenize && !params.stop.empty()) {
      sequence->stops =
          std::make_unique<StopMatcher>(params.stop, params.include_stop_str_in_output);
    }
    SamplerContext context;
    context.vocab_size = static_cast<int32_t>(parts_.info.vocab_size);
    context.eos_ids = parts_.generation.eos_token_ids;
    context.seed = params.seed.value_or(options_.seed + 0x9e3779b97f4a7c15ull * request.id) +
                   static_cast<uint64_t>(i);
    for (const std::string& word : params.bad_words) {
      context.bad_words.push_back(parts_.tokenizer->encode(word, {.add_special_tokens = false}));
    }
    sequence->sampler = std::make_unique<SamplerState>(params, std::move(context));
    if (!params.bad_words.empty()) ++num_host_bound_;
    SequenceSpec spec = spec_of(request, id, i, sequence->max_new_tokens);
    if (params.prompt_logprobs && i == 0) {
      auto scores = std::make_unique<PromptScores>();
      scores->num_alternatives = *params.prompt_logprobs;
      scores->values.reserve(static_cast<size_t>(sequence->num_prompt_tokens - 1) *
                             (static_cast<size_t>(scores->num_alternatives) + 1));
      sequence->scores = std::move(scores);
    }
    parts_.scheduler->add(std::move(spec));
    sequences_.emplace(id, std::move(sequence));
  }
}

void EngineImpl::give_seats(const StepPlan& plan) {
  for (const PlannedRow& row : plan.rows) {
    if (!row.samples) continue;
    EngineSequence& sequence = *sequences_.at(row.sequence);
    if (sequence.seat >= 0 || !(sequence.sampler->needs_counts() || sequence.sampler->needs_mask()))
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
  try {
    give_seats(plan);
    launched.ticket = parts_.runner->launch(plan, sequences_);
  } catch (...) {
    results_.assign(plan.rows.size(), RowResult{});
    fail_all(current_exception_status());
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

// Holds a place for each token that the step samples, and says what commit() can know before the
// samples are read: that a sequence reaches its last token.
void EngineImpl::expect_samples(const StepPlan& plan, LaunchedStep& launched) {
  results_.clear();
  for (const PlannedRow& row : plan.rows) {
    totals_.kv_entries_read += row.kv_begin + row.num_tokens;
    totals_.prompt_tokens += row.samples ? row.num_tokens - 1 : row.num_tokens;
    RowResult& result = results_.emplace_back();
    EngineSequence& sequence = *sequences_.at(row.sequence);
    if (sequence.queue_seconds < 0)
      sequence.queue_seconds = seconds_since(sequence.request->submitted);
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
              .finished = sequence.num_sampled() >= sequence.max_new_tokens};
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
    fail_all(current_exception_status());
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
    ++totals_.generation_tokens;
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
  if (!request.request.sampling.bad_words.empty()) --num_host_bound_;
  sequences_.erase(found);
  if (--request.live_sequences > 0) return;
  requests_.erase(request.id);
  std::lock_guard lock(mutex_);
  --queued_requests_;
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
  t.num_waiting = s.num_waiting + static_cast<int64_t>(inbox_.size());
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
