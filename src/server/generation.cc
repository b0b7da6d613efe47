#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/api_error.h"
#include "server/service.h"

namespace zipage::server {

Generation::Generation(Service& service,
                       uint64_t key,
                       GenerationRequest request,
                       std::shared_ptr<Exchange> exchange)
    : service_(service),
      key_(key),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      live_of_prompt_(request_.prompts.size(), 0),
      cached_tokens_(request_.prompts.size(), 0),
      echoes_(request_.prompts.size()),
      prompt_logprobs_(request_.prompts.size()),
      created_(std::time(nullptr)) {
  const auto n = static_cast<size_t>(request_.sampling.n);
  choices_.resize(request_.prompts.size() * n);
  for (size_t i = 0; request_.echo && i < echoes_.size(); ++i)
    echoes_[i] = request_.prompts[i].text;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.prompt = i / n;
    choice.splitter = ReasoningSplitter(request_.reasoning);
    choice.piece.text = echoes_[choice.prompt];
  }
}

Generation::~Generation() = default;

void Generation::prepare() {
  const SamplingParams& p = request_.sampling;
  std::fill(live_of_prompt_.begin(), live_of_prompt_.end(), p.n);
  live_sequences_ = static_cast<int64_t>(choices_.size());
  service_.count_sequences(live_sequences_);
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->exchange_ = nullptr;
      self->abort();
    }
  });
}

Status Generation::submit(size_t prompt) {
  Request request;
  request.prompt_token_ids = request_.prompts[prompt].tokens;
  request.sampling = request_.sampling;
  request.priority = request_.priority;
  request.cache_salt = request_.cache_salt;
  request.external_id = request_.id;
  auto submitted = service_.engine().submit(
      std::move(request), [mailbox = service_.mailbox(), key = key_, prompt](
                              const RequestOutput& output) { mailbox->put(key, prompt, output); });
  if (!submitted.ok()) return submitted.status();
  ids_.push_back(submitted.value());
  return Status();
}

void Generation::submit_all() {
  try {
    for (size_t i = 0; i < request_.prompts.size() && refusal_.ok(); ++i) refusal_ = submit(i);
  } catch (const std::exception& error) {
    refusal_ = Status(StatusCode::kInternal, error.what());
  }
  // The engine has its own; these may be large, and are freed where they were made.
  SamplingParams& p = request_.sampling;
  p.logit_bias = {};
  p.allowed_token_ids = {};
  p.bad_words = {};
}

// Those that the engine never took are not in progress any more.
void Generation::drop_unsubmitted() {
  int64_t dropped = 0;
  for (size_t i = ids_.size(); i < live_of_prompt_.size(); ++i)
    dropped += std::exchange(live_of_prompt_[i], 0);
  live_sequences_ -= dropped;
  service_.count_sequences(-dropped);
}

void Generation::started() {
  started_ = true;
  if (!refusal_.ok()) {
    drop_unsubmitted();
    if (const auto exchange = std::move(exchange_)) {
      const int status = http_status(refusal_.code());
      if (status == 500) service_.log("error", request_.id + ": " + refusal_.message());
      exchange->respond(engine_error(refusal_));
    }
    abort();
    return;
  }
  const SamplingParams& p = request_.sampling;
  service_.metrics().request_params(p.n,
                                    p.max_tokens.value_or(service_.model().info.max_model_len));
  if (exchange_ == nullptr) {
    abort();
    return;
  }
  if (request_.stream) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    // Proxies must not collect the events.
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->begin_stream(std::move(head));
  }
  // What came while the prompts were submitted.
  if (touched_) flush();
}

void Generation::withdraw() {
  started_ = true;
  exchange_ = nullptr;
  drop_unsubmitted();
  abort();
}

void Generation::abort() {
  // Before that a worker may be submitting still; started() aborts for whoever is gone by then.
  if (!started_) return;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (live_of_prompt_[i] > 0) service_.engine().abort(ids_[i]);
  }
}

void Generation::fail(const std::string& reason) {
  service_.log("error", request_.id + ": " + reason);
  if (const auto exchange = std::move(exchange_))
    exchange->fail(engine_error(Status(StatusCode::kInternal, reason)));
  abort();
}

bool Generation::deliver(Delivery& delivery) {
  const auto index = delivery.prompt * static_cast<size_t>(request_.sampling.n) +
                     static_cast<size_t>(delivery.output.index);
  Choice& choice = choices_.at(index);
  add_output(choice, delivery);
  count(choice, delivery);
  if (delivery.output.finished()) sequence_ended(choice, delivery);
  const bool first = !touched_;
  touched_ = true;
  return first;
}

void Generation::add_output(Choice& choice, Delivery& delivery) {
  RequestOutput& output = delivery.output;
  cached_tokens_[delivery.prompt] = output.num_cached_tokens;
  if (!output.prompt_logprobs.empty())
    prompt_logprobs_[delivery.prompt] = std::move(output.prompt_logprobs);
  if (!request_.drop_output) {
    Piece& piece = choice.piece;
    if (request_.reasoning == ReasoningMode::kOff) {
      piece.text += output.new_text;
    } else {
      choice.splitter.push(output.new_text, &piece.reasoning, &piece.text);
      if (output.finished()) choice.splitter.finish(&piece.reasoning, &piece.text);
    }
    piece.token_ids.insert(piece.token_ids.end(), output.new_token_ids.begin(),
                           output.new_token_ids.end());
    if (request_.with_logprobs) {
      for (auto& list : output.new_logprobs) piece.logprobs.push_back(std::move(list));
    }
  }
  if (!output.finished()) return;
  choice.finish_reason = request_.drop_output && output.finish_reason == FinishReason::kStop
                             ? FinishReason::kLength
                             : output.finish_reason;
  choice.stop_reason = output.stop_reason;
  if (output.finish_reason == FinishReason::kError && error_.ok()) error_ = output.error;
}

void Generation::count(Choice& choice, const Delivery& delivery) {
  const auto tokens = static_cast<int64_t>(delivery.output.new_token_ids.size());
  if (tokens == 0) return;
  const auto seconds = [](Time from, Time to) {
    return std::chrono::duration<double>(to - from).count();
  };
  if (choice.num_tokens == 0) {
    choice.first_token = delivery.time;
    service_.metrics().first_token(seconds(arrived_, delivery.time));
  } else {
    service_.metrics().inter_token(
        seconds(choice.last_token, delivery.time) / static_cast<double>(tokens), tokens);
  }
  choice.last_token = delivery.time;
  choice.num_tokens += tokens;
}

void Generation::sequence_ended(const Choice& choice, const Delivery& delivery) {
  --live_sequences_;
  --live_of_prompt_[delivery.prompt];
  service_.count_sequences(-1);
  FinishedSequence ended;
  ended.reason = delivery.output.finish_reason;
  const auto since = [&](Time time) {
    return std::chrono::duration<double>(time - arrived_).count();
  };
  ended.e2e_seconds = since(delivery.time);
  ended.queue_seconds = delivery.output.queue_seconds;
  if (choice.num_tokens > 0) {
    ended.prefill_seconds = delivery.output.prefill_seconds;
    ended.decode_seconds = delivery.output.decode_seconds;
  }
  ended.prompt_tokens = delivery.output.num_prompt_tokens;
  ended.generation_tokens = choice.num_tokens;
  service_.metrics().sequence_finished(ended);
  if (live_sequences_ > 0) return;
  int64_t longest = 0;
  for (const Choice& each : choices_) longest = std::max(longest, each.num_tokens);
  service_.metrics().request_finished(longest);
}

Usage Generation::usage() const {
  Usage total;
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    total.prompt_tokens += static_cast<int64_t>(request_.prompts[i].tokens.size());
    total.cached_tokens += cached_tokens_[i];
  }
  for (const Choice& choice : choices_) {
    if (!request_.drop_output) total.completion_tokens += choice.num_tokens;
  }
  return total;
}

void Generation::flush() {
  // started() comes back for it.
  if (!started_) return;
  touched_ = false;
  if (exchange_ == nullptr) return;
  if (!error_.ok()) {
    send_error(error_);
  } else if (request_.stream) {
    send_chunks();
  } else if (ended()) {
    send_answer();
  }
}

}  // namespace zipage::server
