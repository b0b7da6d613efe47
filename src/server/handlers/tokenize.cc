// POST /tokenize and /detokenize, GET /tokenizer_info.
#include <boost/json.hpp>

#include "zipage/tokenizer.h"

#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/handlers/handlers.h"
#include "server/service.h"
#include "server/text_offsets.h"

namespace zipage::server {
namespace {

namespace json = boost::json;

Prompt read_text(Fields& f, const ModelContext& context) {
  const auto prompt = f.text("prompt"), content = f.text("content");
  if (prompt && content) fail_field("content", "the same as prompt; give one");
  if (!prompt && !content) fail_field("prompt", "missing; give prompt, content or messages");
  const bool special = f.boolean("add_special_tokens").value_or(prompt.has_value());
  return tokenize(prompt ? *prompt : *content, special, context, prompt ? "prompt" : "content");
}

json::object tokenized(const json::object& body, const ModelContext& context) {
  Fields f(body, kTokenize);
  std::string model;
  read_model(f, context, &model);
  const bool chat = f.find("messages") != nullptr;
  for (const char* other : {"prompt", "content"}) {
    if (chat && f.find(other) != nullptr) fail_field(other, "not together with messages");
  }
  if (!chat) {
    for (const char* other : {"add_generation_prompt", "continue_final_message", "chat_template",
                              "chat_template_kwargs"}) {
      if (f.find(other) != nullptr) fail_field(other, "only with messages");
    }
  }
  const Prompt prompt = chat ? read_chat_prompt(f, context) : read_text(f, context);
  const bool with_strings = f.boolean("return_token_strs").value_or(false);
  f.finish();
  json::object answer{{"count", prompt.tokens.size()},
                      {"max_model_len", context.info.max_model_len},
                      {"tokens", json::value_from(prompt.tokens)},
                      {"token_strs", nullptr}};
  if (with_strings) {
    json::array strings;
    for (const int32_t id : prompt.tokens)
      strings.emplace_back(lossy_text(context.tokenizer.id_to_token(id)));
    answer["token_strs"] = std::move(strings);
  }
  return answer;
}

json::object detokenized(const json::object& body, const ModelContext& context) {
  Fields f(body, kDetokenize);
  std::string model;
  read_model(f, context, &model);
  if (f.find("tokens") == nullptr) fail_field("tokens", "missing");
  const std::vector<int32_t> ids = f.token_ids("tokens");
  f.finish();
  const int64_t vocab_size = context.info.vocab_size;
  for (const int32_t id : ids) {
    if (id >= vocab_size) fail_field("tokens", "token id {} is not in [0, {})", id, vocab_size);
  }
  const std::string text = lossy_text(context.tokenizer.decode(ids, /*skip_special_tokens=*/false));
  return {{"prompt", text}, {"content", text}};
}

using Convert = json::object (*)(const json::object&, const ModelContext&);

// Reads a body and answers it, a large one on a worker.
void convert(Service& service,
             HttpRequest& request,
             const std::shared_ptr<Exchange>& exchange,
             Convert convert) {
  const bool heavy = is_large_body(request);
  const auto input = std::make_shared<HttpRequest>(std::move(request));
  service.work(heavy, exchange, [&service, input, exchange, convert]() -> Service::Then {
    auto text = std::make_shared<std::string>(
        json::serialize(convert(parse_body(input->body, service.count_limits()), service.model())));
    return [text, exchange] { exchange->respond({.body = std::move(*text)}); };
  });
}

}  // namespace

void handle_tokenize(Service& service,
                     HttpRequest& request,
                     const std::shared_ptr<Exchange>& exchange) {
  convert(service, request, exchange, tokenized);
}

void handle_detokenize(Service& service,
                       HttpRequest& request,
                       const std::shared_ptr<Exchange>& exchange) {
  convert(service, request, exchange, detokenized);
}

// What lm-eval's tokenizer_backend=remote reads, under the names of tokenizer_config.json.
void handle_tokenizer_info(Service& service,
                           HttpRequest&,
                           const std::shared_ptr<Exchange>& exchange) {
  const ModelContext& context = service.model();
  const Tokenizer& tokenizer = context.tokenizer;
  const auto token = [&](std::optional<int32_t> id) {
    return id ? json::value(lossy_text(tokenizer.id_to_token(*id))) : json::value(nullptr);
  };
  const std::string chat_template = tokenizer.chat_template();
  json::object answer{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"model_max_length", context.info.max_model_len},
                      {"vocab_size", tokenizer.vocab_size()},
                      {"bos_token", token(tokenizer.bos_id())},
                      {"eos_token", token(tokenizer.eos_id())},
                      {"chat_template", nullptr}};
  if (!chat_template.empty()) answer["chat_template"] = lossy_text(chat_template);
  exchange->respond({.body = json::serialize(answer)});
}

}  // namespace zipage::server
