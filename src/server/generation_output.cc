// How a generation's results become bytes.
#include "server/api_error.h"
#include "server/generation.h"
#include "server/service.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

// "data: {...}\n\n"
std::string sse_event(std::string_view data) {
  std::string text = "data: ";
  text += data;
  text += "\n\n";
  return text;
}

}  // namespace

ChoiceView Generation::view(Choice& choice) const {
  static const std::vector<std::vector<TokenLogprob>> kNone;
  const bool echoes = request_.echo && request_.with_logprobs && !choice.announced;
  return {.request = request_,
          .prompt = request_.prompts[choice.prompt],
          .tokenizer = service_.model().tokenizer,
          .index = &choice - choices_.data(),
          .piece = choice.piece,
          .finish_reason = choice.finish_reason,
          .stop_reason = choice.stop_reason,
          .offsets = choice.offsets,
          .echo = echoes_[choice.prompt],
          .echoed_logprobs = echoes ? prompt_logprobs_[choice.prompt] : kNone};
}

json::value Generation::prompt_logprobs(size_t prompt) const {
  return prompt_logprobs_json(prompt_logprobs_[prompt], *request_.prompt_logprobs,
                              service_.model().tokenizer);
}

bool Generation::event(std::string_view rest) {
  if (exchange_ == nullptr) return false;
  if (head_.empty()) {
    head_ = json::serialize(answer_head(request_, created_, service_.fingerprint()));
    head_.pop_back();
  }
  std::string text;
  text.reserve(head_.size() + rest.size() + 16);
  text += "data: ";
  text += head_;
  text += rest;
  text += "}\n\n";
  return exchange_->write(text);
}

// Each write may find that the client is gone; exchange_ is null then.
bool Generation::send_chunk(Choice& choice) {
  std::string usage_text;
  if (request_.continuous_usage) {
    usage_text = ",\"usage\":" + json::serialize(usage_json(usage()));
  } else if (request_.include_usage) {
    usage_text = ",\"usage\":null";
  }
  const auto prompt_ids = [&] {
    return ",\"prompt_token_ids\":" +
           json::serialize(json::value_from(request_.prompts[choice.prompt].tokens));
  };
  if (request_.chat && !choice.announced) {
    const json::object role{{"index", &choice - choices_.data()},
                            {"delta", json::object{{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}};
    std::string first = usage_text + ",\"choices\":[" + json::serialize(role) + "]";
    if (request_.return_token_ids) first += prompt_ids();
    if (!event(first)) return false;
  }
  std::string part = delta_text(view(choice));
  if (!request_.chat && !choice.announced && request_.return_token_ids) {
    part.pop_back();
    part += prompt_ids() + "}";
  }
  choice.announced = true;
  choice.piece = {};
  return event(usage_text + ",\"choices\":[" + part + "]");
}

void Generation::send_chunks() {
  if (!exchange_->ready()) return;
  for (Choice& choice : choices_) {
    // The prompt's log-probabilities come with the first of its choices' outputs, and go in front
    // of each.
    if (request_.echo && request_.with_logprobs && prompt_logprobs_[choice.prompt].empty() &&
        !ended())
      continue;
    const bool last = choice.finish_reason != FinishReason::kNone && !choice.closed;
    const Piece& piece = choice.piece;
    // A token without text (half a character, a stop string's beginning) waits for its text,
    // unless its id or log-probability is wanted.
    const bool something =
        !piece.text.empty() || (!piece.reasoning.empty() && request_.include_reasoning) ||
        (!piece.empty() && (request_.return_token_ids || request_.with_logprobs));
    if (!last && (!something || choice.num_tokens == 0)) continue;
    if (!request_.include_reasoning) choice.piece.reasoning.clear();
    choice.closed = last;
    if (!send_chunk(choice)) return;
  }
  if (!ended()) return;
  if (request_.include_usage) {
    if (!event(",\"choices\":[],\"usage\":" + json::serialize(usage_json(usage())))) return;
  }
  close();
}

// Thousands of small objects: log-probabilities, or the ids of long prompts.
bool Generation::is_large_answer() const {
  constexpr size_t kMostHere = 2048;
  size_t entries = 0;
  for (const auto& lists : prompt_logprobs_) {
    for (const auto& list : lists) entries += list.size();
  }
  for (const Choice& choice : choices_) {
    for (const auto& list : choice.piece.logprobs) entries += 1 + list.size();
    if (request_.return_token_ids) entries += request_.prompts[choice.prompt].tokens.size() / 8;
  }
  return entries > kMostHere;
}

void Generation::send_answer() {
  const auto exchange = exchange_;
  try {
    // Nothing is delivered any more: whoever builds the answer is alone with it.
    service_.work(is_large_answer(), exchange, [self = shared_from_this(), exchange] {
      auto text = std::make_shared<std::string>(self->answer_text());
      return [text, exchange] { exchange->respond({.body = std::move(*text)}); };
    });
  } catch (const ApiError&) {
    // The workers have too much to do; what is computed is not thrown away.
    exchange->respond({.body = answer_text()});
  }
  exchange_ = nullptr;
}

std::string Generation::answer_text() {
  json::object answer = answer_head(request_, created_, service_.fingerprint());
  json::array choices;
  for (Choice& choice : choices_) {
    json::object shown = choice_json(view(choice), false);
    if (!request_.chat && request_.prompt_logprobs)
      shown["prompt_logprobs"] = prompt_logprobs(choice.prompt);
    choices.emplace_back(std::move(shown));
  }
  answer["choices"] = std::move(choices);
  answer["usage"] = usage_json(usage());
  if (request_.chat) {
    answer["service_tier"] = nullptr;
    answer["kv_transfer_params"] = nullptr;
    answer["prompt_logprobs"] = nullptr;
    if (request_.return_token_ids)
      answer["prompt_token_ids"] = json::value_from(request_.prompts[0].tokens);
    if (request_.prompt_logprobs) answer["prompt_logprobs"] = prompt_logprobs(0);
  }
  return json::serialize(answer);
}

void Generation::send_error(const Status& error) {
  const HttpResponse response = engine_error(error);
  if (response.status == 500) service_.log("error", request_.id + ": " + error.message());
  if (!request_.stream) {
    const auto exchange = std::move(exchange_);
    exchange->respond(response);
  } else if (exchange_->write(sse_event(response.body))) {
    close();
  }
  abort();
}

void Generation::close() {
  if (!exchange_->write(sse_event("[DONE]"))) return;
  const auto exchange = std::move(exchange_);
  exchange->end_stream();
}

}  // namespace zipage::server
