// One function an endpoint. Each answers, now or later, or throws ApiError.
#pragma once

#include <memory>

#include "server/http.h"

namespace zipage::server {

class Service;

void handle_chat(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_completion(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_models(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_model(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_tokenize(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_detokenize(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_health(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_ping(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_version(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_load(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_metrics(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);
void handle_openapi(Service&, const HttpRequest&, const std::shared_ptr<Exchange>&);

}  // namespace zipage::server
