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

// The alternatives as text -> log-probability; the first of two tokens with one text is kept.
json::object top_object(const ChoiceView& choice, const std::vector<TokenLogprob>& list) {
  json::object top;
  for (size_t i = 1; i < list.size(); ++i) {
    const std::string text = token_text(choice, list[i].token_id);
    if (!top.contains(text)) top[text] = finite(list[i].logprob);
  }
  // The chosen token is always there, as in vLLM.
  const std::string chosen = token_text(choice, list[0].token_id);
  if (!top.contains(chosen)) top[chosen] = finite(list[0].logprob);
  return top;
}

// Bytes of the UTF-8 character at `at`; 0 when it is broken.
size_t character_length(const std::string& bytes, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  const unsigned lead = byte(at), second = byte(at + 1);
  if (lead < 0x80) return 1;
  // Shortest forms only, no surrogates, nothing above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || second < low || second > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string lossy_text(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = character_length(bytes, i);
    if (length > 0) {
      text.append(bytes, i, length);
    } else {
      text += "\xEF\xBF\xBD";
    }
    i += std::max<size_t>(1, length);
  }
  return text;
}

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
  int64_t offset = choice.text_offset;
  const bool with_top = choice.request.sampling.logprobs.value_or(0) > 0;
  const auto add = [&](int32_t id, const std::vector<TokenLogprob>* list) {
    tokens.emplace_back(token_text(choice, id));
    offsets.emplace_back(offset);
    offset += static_cast<int64_t>(lossy_text(choice.tokenizer.id_to_bytes(id)).size());
    values.emplace_back(list == nullptr ? json::value(nullptr)
                                        : json::value(finite((*list)[0].logprob)));
    tops.emplace_back(list == nullptr || !with_top ? json::value(nullptr)
                                                   : json::value(top_object(choice, *list)));
  };
  if (choice.request.echo) {
    // The first prompt token has nothing before it: no log-probability.
    for (size_t i = 0; i < choice.prompt_logprobs.size(); ++i) {
      const auto& list = choice.prompt_logprobs[i];
      add(choice.prompt.tokens[i], list.empty() ? nullptr : &list);
    }
  }
  for (const auto& list : choice.piece.logprobs) add(list[0].token_id, &list);
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

json::value prompt_logprobs_json(const ChoiceView& choice) {
  if (choice.prompt_logprobs.empty()) return nullptr;
  json::array positions;
  for (const auto& list : choice.prompt_logprobs) {
    if (list.empty()) {
      positions.emplace_back(nullptr);
      continue;
    }
    json::object position;
    for (const TokenLogprob& token : list) {
      position[std::to_string(token.token_id)] =
          json::object{{"logprob", finite(token.logprob)},
                       {"rank", token.rank},
                       {"decoded_token", lossy_text(choice.tokenizer.id_to_bytes(token.token_id))}};
    }
    positions.emplace_back(std::move(position));
  }
  return positions;
}

}  // namespace zipage::server
