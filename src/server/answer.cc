#include "server/answer.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace zipage::server {
namespace {

namespace json = boost::json;

// null while the choice goes on.
json::value finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::kNone) return nullptr;
  return to_string(reason);
}

// A stop string as a string, a stop token as a number.
json::value stop_reason_json(const ChoiceView& choice) {
  const std::string& reason = choice.stop_reason;
  if (reason.empty()) return nullptr;
  const auto& stops = choice.request.sampling.stop;
  if (std::find(stops.begin(), stops.end(), reason) != stops.end()) return json::value(reason);
  int32_t id = 0;
  std::from_chars(reason.data(), reason.data() + reason.size(), id);
  return id;
}

// Both names: vLLM's and the older one.
void add_reasoning(const ChoiceView& choice, json::object& message) {
  if (!choice.request.include_reasoning || choice.piece.reasoning.empty()) return;
  message["reasoning"] = choice.piece.reasoning;
  message["reasoning_content"] = choice.piece.reasoning;
}

json::object chat_delta(const ChoiceView& choice) {
  json::object delta;
  add_reasoning(choice, delta);
  if (!choice.piece.text.empty()) delta["content"] = choice.piece.text;
  return delta;
}

json::object chat_message(const ChoiceView& choice) {
  json::object message{{"role", "assistant"}};
  const bool only_thought = choice.piece.text.empty() && !choice.piece.reasoning.empty();
  message["content"] = only_thought ? json::value(nullptr) : json::value(choice.piece.text);
  message["refusal"] = nullptr;
  message["tool_calls"] = json::array{};
  if (choice.request.include_reasoning) message["reasoning"] = nullptr;
  add_reasoning(choice, message);
  return message;
}

}  // namespace

json::object choice_json(const ChoiceView& choice, bool delta) {
  const GenerationRequest& request = choice.request;
  json::object out{{"index", choice.index}};
  if (request.chat) {
    if (delta) {
      out["delta"] = chat_delta(choice);
    } else {
      out["message"] = chat_message(choice);
    }
  } else {
    out["text"] = choice.piece.text;
  }
  out["logprobs"] = nullptr;
  const bool some = !choice.piece.logprobs.empty() || !choice.echoed_logprobs.empty();
  if (request.with_logprobs && some)
    out["logprobs"] = request.chat ? chat_logprobs(choice) : completion_logprobs(choice);
  out["finish_reason"] = finish_reason_json(choice.finish_reason);
  out["stop_reason"] = stop_reason_json(choice);
  if (request.return_token_ids) {
    out["token_ids"] = json::value_from(choice.piece.token_ids);
    if (!request.chat && !delta) out["prompt_token_ids"] = json::value_from(choice.prompt.tokens);
  }
  return out;
}

std::string delta_text(const ChoiceView& choice) {
  const GenerationRequest& request = choice.request;
  const bool plain = !request.with_logprobs && !request.return_token_ids &&
                     choice.finish_reason == FinishReason::kNone && choice.stop_reason.empty() &&
                     choice.piece.reasoning.empty();
  if (!plain) return json::serialize(choice_json(choice, true));
  const std::string text = json::serialize(json::string_view(choice.piece.text));
  if (!request.chat) {
    return fmt::format(
        R"({{"index":{},"text":{},"logprobs":null,"finish_reason":null,"stop_reason":null}})",
        choice.index, text);
  }
  return fmt::format(
      R"({{"index":{},"delta":{{{}{}}},"logprobs":null,"finish_reason":null,"stop_reason":null}})",
      choice.index,
      choice.piece.text.empty() ? "" : "\"content\":", choice.piece.text.empty() ? "" : text);
}

json::object usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", usage.cached_tokens}}}};
}

json::object answer_head(const GenerationRequest& request,
                         int64_t created,
                         const std::string& fingerprint) {
  const char* object = !request.chat    ? "text_completion"
                       : request.stream ? "chat.completion.chunk"
                                        : "chat.completion";
  return {{"id", request.id},
          {"object", object},
          {"created", created},
          {"model", request.model},
          {"system_fingerprint", fingerprint}};
}

}  // namespace zipage::server
