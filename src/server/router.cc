#include "server/router.h"

#include "server/handlers/handlers.h"

namespace zipage::server {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", handle_chat, false, true, true, "Answers a conversation"},
    {"POST", "/v1/completions", handle_completion, false, true, true, "Continues prompts"},
    {"GET", "/v1/models", handle_models, false, true, false, "The served models"},
    {"GET", "/v1/models/", handle_model, false, true, false, "One served model"},
    {"POST", "/tokenize", handle_tokenize, false, true, false, "Text or messages to token ids"},
    {"POST", "/detokenize", handle_detokenize, false, true, false, "Token ids to text"},
    {"GET", "/tokenizer_info", handle_tokenizer_info, false, true, false,
     "Special tokens and the chat template"},
    {"GET", "/health", handle_health, true, true, true, "200 when requests are served"},
    {"GET", "/v1/health", handle_health, false, true, true, "The same, behind the key"},
    {"GET", "/ping", handle_ping, true, false, false, "200 when the server runs"},
    {"GET", "/version", handle_version, false, false, false, "The version"},
    {"GET", "/load", handle_load, false, false, false, "Requests in progress"},
    {"GET", "/metrics", handle_metrics, false, false, false, "Metrics for Prometheus"},
    {"GET", "/openapi.json", handle_openapi, false, false, false, "This interface"},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.name == path) return &route;
    if (route.name.ends_with('/') && path.size() > route.name.size() &&
        path.starts_with(route.name))
      return &route;
  }
  return nullptr;
}

}  // namespace zipage::server
