// From a submitted request to sequences that the scheduler knows: checks, the inbox, admission.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/output_builder.h"

namespace zipage {
namespace {

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// The token sequences that spell the bad words, as vLLM has it: each word without leading white
// space, as it begins a text, and with a space in front, as it comes inside one. The second only if
// it is another token instead of the first one: otherwise its last token would be forbidden after
// words of which it is an ordinary end.
std::vector<std::vector<int32_t>> tokenize_bad_words(const Tokenizer& tokenizer,
                                                     const std::vector<std::string>& words) {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of(" \t\n\v\f\r");
    if (begin == std::string::npos) {  // white space itself
      sequences.push_back(tokenizer.encode(word, {.add_special_tokens = false}));
      continue;
    }
    const std::string bare = word.substr(begin);
    std::vector<int32_t> first = tokenizer.encode(bare, {.add_special_tokens = false});
    std::vector<int32_t> inside = tokenizer.encode(" " + bare, {.add_special_tokens = false});
    const bool differs =
        !first.empty() && inside.size() == first.size() && inside.front() != first.front();
    sequences.push_back(std::move(first));
    if (differs) sequences.push_back(std::move(inside));
  }
  return sequences;
}

}  // namespace

int32_t EngineImpl::max_new_tokens(const Request& request) const {
  // Of a prompt alone: the token that is thrown away.
  if (request.sampling.max_tokens == 0) return 1;
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

SequenceSpec EngineImpl::spec_of(const RequestState& state, SequenceId id, int32_t index) const {
  const SamplingParams& params = state.sampling();
  SequenceSpec spec;
  spec.id = id;
  spec.shared_prompt = state.prompt;
  spec.max_new_tokens = state.max_new_tokens;
  spec.prompt_only = state.prompt_only();
  spec.kv_budget = params.kv_budget.value_or(parts_.info.compression.kv_budget);
  spec.kv_policy = params.kv_policy.value_or(parts_.info.compression.kv_policy);
  spec.priority = state.priority;
  // Cached blocks have no hidden states to score. One of the n sequences scores the prompt for all.
  spec.reads_prefix_cache =
      !params.skip_reading_prefix_cache && !(params.prompt_logprobs && index == 0);
  if (!state.cache_salt.empty()) spec.hash_keys.push_back(state.cache_salt);
  return spec;
}

Status EngineImpl::check(const Request& request) const {
  if (request.prompt_token_ids.empty())
    return invalid("prompt: empty; at least one token is needed");
  for (const int32_t token : request.prompt_token_ids) {
    if (token < 0 || token >= parts_.info.vocab_size) {
      return invalid(
          fmt::format("prompt: token id {} is not in [0, {})", token, parts_.info.vocab_size));
    }
  }
  const auto length = static_cast<int64_t>(request.prompt_token_ids.size());
  if (length > parts_.info.max_model_len) {
    return invalid(fmt::format("prompt: {} tokens are more than the {} of max_model_len", length,
                               parts_.info.max_model_len));
  }
  if (length == parts_.info.max_model_len && request.sampling.max_tokens != 0) {
    return invalid(fmt::format("prompt: {} tokens leave no room for output; max_model_len is {}",
                               length, parts_.info.max_model_len));
  }
  if (request.priority != 0 && options_.scheduling_policy != SchedulingPolicy::kPriority) {
    return invalid(fmt::format(
        "priority: {}: expected 0; this engine serves requests in the order of their arrival "
        "(scheduling_policy {})",
        request.priority, to_string(options_.scheduling_policy)));
  }
  return check_sampling(request.sampling);
}

// Ranges, what the sampler of this engine has room for, and what it needs a tokenizer for.
Status EngineImpl::check_sampling(const SamplingParams& params) const {
  if (Status status = params.validate(parts_.info.vocab_size); !status.ok()) return status;
  const int64_t logprobs = params.logprobs.value_or(0);
  if (logprobs > parts_.max_logprobs || logprobs < 0) {
    return invalid(fmt::format("logprobs: {} is not in [0, {}]", logprobs, parts_.max_logprobs));
  }
  const int64_t scores = params.prompt_logprobs.value_or(0);
  if (scores > parts_.max_logprobs || scores < 0) {
    return invalid(
        fmt::format("prompt_logprobs: {} is not in [0, {}]", scores, parts_.max_logprobs));
  }
  if (!parts_.tokenizer && !params.bad_words.empty())
    return invalid("bad_words: the model has no tokenizer");
  if (!parts_.tokenizer && !params.stop.empty()) return invalid("stop: the model has no tokenizer");
  if (options_.max_queued_requests > 0 && params.n > options_.max_queued_requests) {
    return invalid(fmt::format("n: {} sequences are more than the queue holds ({})", params.n,
                               options_.max_queued_requests));
  }
  return Status();
}

std::unique_ptr<RequestState> EngineImpl::make_state(Request request,
                                                     OutputCallback callback) const {
  auto state = std::make_unique<RequestState>();
  state->max_new_tokens = max_new_tokens(request);
  state->prompt = std::make_shared<const std::vector<int32_t>>(std::move(request.prompt_token_ids));
  state->priority = request.priority;
  state->cache_salt = std::move(request.cache_salt);
  state->external_id = std::move(request.external_id);
  const SamplingParams& params = request.sampling;
  if (params.detokenize && !params.stop.empty()) {
    state->stops =
        std::make_unique<const StopStrings>(params.stop, params.include_stop_str_in_output);
  }
  SamplerContext context;
  context.vocab_size = static_cast<int32_t>(parts_.info.vocab_size);
  context.eos_ids = parts_.generation.eos_token_ids;
  if (!params.bad_words.empty())
    context.bad_words = tokenize_bad_words(*parts_.tokenizer, params.bad_words);
  state->live_sequences = params.n;
  state->sampler =
      std::make_unique<const RequestSampler>(std::move(request.sampling), std::move(context));
  state->callback = std::move(callback);
  state->submitted = std::chrono::steady_clock::now();
  return state;
}

Status EngineImpl::check_state(const RequestState& state) const {
  if (Status status = state.sampler->check(parts_.max_bias); !status.ok()) return status;
  const SequenceSpec spec = spec_of(state, 0, 0);
  if (spec.kv_budget != kFullKv && parts_.compressor) {
    if (Status status = parts_.compressor->can_run(spec.kv_policy); !status.ok()) return status;
  }
  return parts_.scheduler->can_ever_run(spec);
}

Result<RequestId> EngineImpl::submit(Request request, OutputCallback callback) {
  if (Status status = check(request); !status.ok()) return status;
  auto state = make_state(std::move(request), std::move(callback));
  if (Status status = check_state(*state); !status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (!broken_.ok()) return broken_;
  const int64_t n = state->live_sequences;
  if (options_.max_queued_requests > 0 &&
      unfinished_sequences_ + n > options_.max_queued_requests) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the queue is full: {} sequences are in progress, at most {} may be "
                              "(max_queued_requests)",
                              unfinished_sequences_, options_.max_queued_requests));
  }
  const RequestId id = next_request_++;
  state->id = id;
  unfinished_sequences_ += n;
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
  const SamplingParams& params = request.sampling();
  for (int32_t i = 0; i < params.n; ++i) {
    auto sequence = std::make_unique<EngineSequence>();
    const SequenceId id = sequence->id = next_sequence_++;
    sequence->request = &request;
    sequence->index = i;
    sequence->num_prompt_tokens = request.num_prompt_tokens();
    sequence->seed =
        params.seed.value_or(seed_ + 0x9e3779b97f4a7c15ull * request.id) + static_cast<uint64_t>(i);
    parts_.scheduler->add(spec_of(request, id, i));
    sequences_.emplace(id, std::move(sequence));
  }
}

}  // namespace zipage
