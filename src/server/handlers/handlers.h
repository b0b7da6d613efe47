// One function an endpoint. Each answers, now or later, or throws ApiError. It may take the body out
// of the request. Thread: the io thread.
#pragma once

#include <memory>

#include "server/http.h"

namespace zipage::server {

class Service;

// Whether reading the body takes long enough to hold up others: it is a worker's then.
inline bool is_large_body(const HttpRequest& request) {
  constexpr size_t kMostBytesHere = 8 << 10;
  return request.body.size() > kMostBytesHere;
}

void handle_chat(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_completion(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_models(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_model(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_tokenize(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_detokenize(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_tokenizer_info(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_health(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_ping(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_version(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_load(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_metrics(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_openapi(Service&, HttpRequest&, const std::shared_ptr<Exchange>&);

}  // namespace zipage::server
