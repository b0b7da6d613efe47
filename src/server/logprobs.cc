// Log-probabilities in the shapes of chat, of completions and of prompts.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "server/answer.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

// JSON has no infinity; vLLM clamps at the same value.
double finite(float logprob) {
  return std::isfinite(logprob) ? std::max(-9999.0f, logprob) : -9999.0;
}

std::string token_text(const ChoiceView& choice, int32_t id) {
  if (choice.request.tokens_as_ids) return fmt::format("token_id:{}", id);
  return lossy_text(choice.tokenizer.id_to_bytes(id));
}

json::object chat_token(const ChoiceView& choice, const TokenLogprob& token) {
  json::array bytes;
  for (const unsigned char byte : choice.tokenizer.id_to_bytes(token.token_id))
    bytes.emplace_back(static_cast<int>(byte));
  return {{"token", token_text(choice, token.token_id)},
          {"logprob", finite(token.logprob)},
          {"bytes", std::move(bytes)}};
}

// The `most` best as text -> log-probability; the first of two tokens with one text is kept.
json::object top_object(const ChoiceView& choice,
                        const std::vector<TokenLogprob>& list,
                        int32_t most) {
  json::object top;
  for (size_t i = 1; i < list.size() && static_cast<int32_t>(i) <= most; ++i) {
    const std::string text = token_text(choice, list[i].token_id);
    if (!top.contains(text)) top[text] = finite(list[i].logprob);
  }
  // The chosen token is always there, as in vLLM.
  const std::string chosen = token_text(choice, list[0].token_id);
  if (!top.contains(chosen)) top[chosen] = finite(list[0].logprob);
  return top;
}

}  // namespace

json::object chat_logprobs(const ChoiceView& choice) {
  json::array content;
  for (const auto& list : choice.piece.logprobs) {
    json::object entry = chat_token(choice, list[0]);
    json::array top;
    for (size_t i = 1; i < list.size(); ++i) top.emplace_back(chat_token(choice, list[i]));
    entry["top_logprobs"] = std::move(top);
    content.emplace_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_logprobs(const ChoiceView& choice) {
  json::array tokens, values, tops, offsets;
  const int32_t most = choice.request.sampling.logprobs.value_or(0);
  const auto add = [&](int32_t id, bool shown, const std::vector<TokenLogprob>* list) {
    tokens.emplace_back(token_text(choice, id));
    offsets.emplace_back(choice.offsets.add(shown ? choice.tokenizer.id_to_bytes(id) : ""));
    values.emplace_back(list == nullptr ? json::value(nullptr)
                                        : json::value(finite((*list)[0].logprob)));
    tops.emplace_back(list == nullptr || most == 0 ? json::value(nullptr)
                                                   : json::value(top_object(choice, *list, most)));
  };
  size_t at = 0;  // in the echo
  for (size_t i = 0; i < choice.echoed_logprobs.size(); ++i) {
    const int32_t id = choice.prompt.tokens[i];
    const std::string bytes = choice.tokenizer.id_to_bytes(id);
    // The tokenizer's own BOS is not in the client's text.
    const bool shown =
        !choice.tokenizer.is_special(id) || choice.echo.substr(at).starts_with(bytes);
    if (shown) at = std::min(choice.echo.size(), at + bytes.size());
    // The first prompt token has nothing before it: no log-probability.
    const auto& list = choice.echoed_logprobs[i];
    add(id, shown, list.empty() ? nullptr : &list);
  }
  const bool skips = choice.request.sampling.skip_special_tokens;
  for (const auto& list : choice.piece.logprobs) {
    const int32_t id = list[0].token_id;
    add(id, !skips || !choice.tokenizer.is_special(id), &list);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

json::value prompt_logprobs_json(const std::vector<std::vector<TokenLogprob>>& lists,
                                 int32_t most,
                                 const Tokenizer& tokenizer) {
  if (lists.empty()) return nullptr;
  json::array positions;
  for (const auto& list : lists) {
    if (list.empty()) {
      positions.emplace_back(nullptr);
      continue;
    }
    json::object position;
    for (size_t i = 0; i < list.size() && static_cast<int32_t>(i) <= most; ++i) {
      const TokenLogprob& token = list[i];
      position[std::to_string(token.token_id)] =
          json::object{{"logprob", finite(token.logprob)},
                       {"rank", token.rank},
                       {"decoded_token", lossy_text(tokenizer.id_to_bytes(token.token_id))}};
    }
    positions.emplace_back(std::move(position));
  }
  return positions;
}

}  // namespace zipage::server
