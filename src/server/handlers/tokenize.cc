// POST /tokenize and /detokenize.
#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/handlers/handlers.h"
#include "server/service.h"

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

}  // namespace

void handle_tokenize(Service& service,
                     const HttpRequest& request,
                     const std::shared_ptr<Exchange>& exchange) {
  const json::object body = parse_body(request.body);
  const ModelContext& context = service.model();
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
    for (const int32_t id : prompt.tokens) strings.emplace_back(context.tokenizer.id_to_token(id));
    answer["token_strs"] = std::move(strings);
  }
  exchange->respond({.body = json::serialize(answer)});
}

void handle_detokenize(Service& service,
                       const HttpRequest& request,
                       const std::shared_ptr<Exchange>& exchange) {
  const json::object body = parse_body(request.body);
  Fields f(body, kDetokenize);
  std::string model;
  read_model(f, service.model(), &model);
  if (f.find("tokens") == nullptr) fail_field("tokens", "missing");
  const std::vector<int32_t> ids = f.token_ids("tokens");
  f.finish();
  const int64_t vocab_size = service.model().info.vocab_size;
  for (const int32_t id : ids) {
    if (id >= vocab_size) fail_field("tokens", "token id {} is not in [0, {})", id, vocab_size);
  }
  const std::string text = service.model().tokenizer.decode(ids, /*skip_special_tokens=*/false);
  exchange->respond({.body = json::serialize(json::object{{"prompt", text}, {"content", text}})});
}

}  // namespace zipage::server
