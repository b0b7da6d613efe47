// From a submitted request to sequences that the scheduler knows: checks, the inbox, admission.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/output_builder.h"

namespace zipage {

int32_t EngineImpl::max_new_tokens(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  const SamplingParams& params = request.sampling;
  int64_t room = parts_.info.max_model_len - prompt;
  // Without a cap a request that names no end gets what the whole pool holds; the last token's KV is
  // never stored. It ends with kLength there, as at the model's length.
  if (!params.max_tokens &&
      params.kv_budget.value_or(parts_.info.compression.kv_budget) == kFullKv) {
    const int64_t pool = parts_.info.num_blocks * parts_.info.block_size;
    room = std::max<int64_t>(1, std::min(room, pool + 1 - prompt));
  }
  return static_cast<int32_t>(std::min(room, params.max_tokens.value_or(room)));
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
  state->submitted = std::chrono::steady_clock::now();
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

std::unique_ptr<EngineSequence> EngineImpl::make_sequence(RequestState& request, int32_t index) {
  const SamplingParams& params = request.request.sampling;
  auto sequence = std::make_unique<EngineSequence>();
  sequence->id = next_sequence_++;
  sequence->request = &request;
  sequence->index = index;
  sequence->num_prompt_tokens = static_cast<int32_t>(request.request.prompt_token_ids.size());
  sequence->max_new_tokens = max_new_tokens(request.request);
  sequence->tokens.reserve(
      static_cast<size_t>(sequence->num_prompt_tokens + sequence->max_new_tokens));
  sequence->tokens = request.request.prompt_token_ids;
  const bool detokenize = params.detokenize && parts_.tokenizer;
  if (detokenize) sequence->decoder = parts_.tokenizer->new_decoder(params.skip_special_tokens);
  if (detokenize && !params.stop.empty()) {
    sequence->stops = std::make_unique<StopMatcher>(params.stop, params.include_stop_str_in_output);
  }
  SamplerContext context;
  context.vocab_size = static_cast<int32_t>(parts_.info.vocab_size);
  context.eos_ids = parts_.generation.eos_token_ids;
  context.seed = params.seed.value_or(options_.seed + 0x9e3779b97f4a7c15ull * request.id) +
                 static_cast<uint64_t>(index);
  for (const std::string& word : params.bad_words) {
    context.bad_words.push_back(parts_.tokenizer->encode(word, {.add_special_tokens = false}));
  }
  sequence->sampler = std::make_unique<SamplerState>(params, std::move(context));
  if (params.prompt_logprobs && index == 0) {
    auto scores = std::make_unique<PromptScores>();
    scores->num_alternatives = *params.prompt_logprobs;
    scores->values.reserve(static_cast<size_t>(sequence->num_prompt_tokens - 1) *
                           (static_cast<size_t>(scores->num_alternatives) + 1));
    sequence->scores = std::move(scores);
  }
  return sequence;
}

void EngineImpl::admit(std::unique_ptr<RequestState> state) {
  RequestState& request = *state;
  requests_.emplace(request.id, std::move(state));
  const SamplingParams& params = request.request.sampling;
  request.live_sequences = params.n;
  for (int32_t i = 0; i < params.n; ++i) {
    auto sequence = make_sequence(request, i);
    if (!params.bad_words.empty()) ++num_host_bound_;
    parts_.scheduler->add(spec_of(request, sequence->id, i, sequence->max_new_tokens));
    const SequenceId id = sequence->id;
    sequences_.emplace(id, std::move(sequence));
  }
}

}  // namespace zipage
